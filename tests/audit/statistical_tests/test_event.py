"""Tests of `audit.statistical_tests.event`: one cell per output, and the wording of witnesses."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import NumberLine, read, read_worlds
from audit.statistical_tests import event
from audit.statistical_tests.choose_event import Trial, learn_rule
from audit.statistical_tests.event import Event, Tally, witness_of, wording
from audit.statistical_tests.prequential_fixed_runs_test import gather
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import effort
from tests.support.audit.parse_witness import holds, in_event

PLAIN = st.one_of(
    st.integers(-5, 5),
    st.floats(-3, 3, allow_nan=False),
    st.sampled_from([None, "a", "stop", True, False, math.nan, math.inf, -math.inf]),
    st.tuples(st.integers(0, 2), st.floats(allow_nan=True, allow_infinity=False, width=16)),
)


def tally_of(outputs: Any, worlds: Any) -> Tally:
    """The tally of one batch."""
    return Tally.empty().add(read(outputs), np.asarray(worlds, dtype=bool))


@given(st.lists(PLAIN, max_size=40), st.data())
def test_counts_agree_with_a_counter(outputs: list[Any], data: st.DataObject) -> None:
    worlds = data.draw(st.lists(st.booleans(), min_size=len(outputs), max_size=len(outputs)))
    middle = len(outputs) // 2
    tally = tally_of(outputs[:middle], worlds[:middle])
    tally = tally.add(read(outputs[middle:]), np.array(worlds[middle:], dtype=bool))
    expected = Counter((repr(x), w) for x, w in zip(outputs, worlds, strict=True))
    assert tally.runs == len(outputs)
    for i, place in enumerate(tally.numbers.listed()):
        for world in (0, 1):
            held = (repr(place.value), bool(world))
            assert tally.number_counts[world, i] == expected.pop(held, 0)
    for column, label in enumerate(tally.labels):
        for world in (0, 1):
            assert tally.label_counts[world, column] == expected.pop((str(label), bool(world)), 0)
    assert not expected


@given(st.lists(PLAIN, min_size=1, max_size=40), st.lists(PLAIN, min_size=1, max_size=10))
def test_the_cell_of_an_output_does_not_depend_on_other_outputs(
    past: list[Any], new: list[Any]
) -> None:
    cells = tally_of(past, [True] * len(past)).cells()
    together = cells.locate(read(new)).tolist()
    assert together == [int(cells.locate(read([output]))[0]) for output in new]
    assert all(0 <= cell < cells.counts.shape[1] for cell in together)
    # The runs used for learning, counted again, fall into the same cells.
    again = cells.count(read(past), np.ones(len(past), dtype=bool))
    assert (again[:, :-1] == cells.counts[:, :-1]).all()


@given(st.integers(0, 3), st.floats(0.3, 3000), st.booleans(), st.integers(0, 2**20), st.booleans())
def test_every_number_is_in_exactly_one_interval(
    seed: int, scale: float, whole: bool, heavy: int, many: bool
) -> None:
    rng = np.random.default_rng([seed, heavy])
    numbers = rng.laplace(0, scale, 3000 if many else 60)
    numbers = np.rint(numbers) if whole else numbers
    numbers[:50] = float(heavy)
    cells = tally_of(numbers, rng.integers(0, 2, len(numbers)).astype(bool)).cells()
    assert cells.intervals <= 3 * (8 + 4 * math.isqrt(len(numbers)))
    assert (cells.cuts.places[1:] > cells.cuts.places[:-1]).all()
    assert cells.counts.sum() == len(numbers)
    if many:  # a number repeated fifty times has its own cell
        found = int(cells.locate(read(np.array([float(heavy)])))[0])
        same = (numbers == heavy) & ~np.signbit(numbers)  # -0.0 is a different value
        assert cells.counts[:, found].sum() == np.count_nonzero(same)


@pytest.mark.parametrize(
    ("zero", "words"), [(-0.0, "0 <= output < 1 (where -0.0 < 0.0)"), (0.0, "output in {0}")]
)
def test_an_event_with_one_signed_zero_names_its_sign(zero: float, words: str) -> None:
    outputs, worlds = [zero, 0.0, 1.0, -1.0] * 50, [False, True, True, False] * 50
    cells = tally_of(outputs, worlds).cells()
    chosen = np.zeros(cells.counts.shape[1], dtype=bool)
    chosen[cells.locate(read([0.0]))] = True
    found = Event(cells=cells, chosen=chosen, integral=cells.integral)
    assert found.words() == words
    found.chosen[cells.locate(read([-0.0]))] = True
    assert "where" not in found.words()


def test_nan_infinities_and_unseen_labels_have_their_cells() -> None:
    values = np.array([math.nan, math.inf, -math.inf, 1e300, -1e300, math.nan])
    cells = tally_of(values, [True] * 6).cells()
    found = cells.locate(read(values)).tolist()
    assert (len(set(found[:5])), found[0]) == (5, found[5])
    assert cells.counts[1, found[0]] == 2
    # Unseen labels share the cell of labels seen once.
    cells = tally_of(["a", "a", "b", "c"], [False, False, True, True]).cells()
    assert cells.locate(read(["new", "other"])).tolist() == [4, 4]
    assert cells.counts[:, 4].tolist() == [0, 2]


def test_empty_batches_and_invalid_datasets_are_refused() -> None:
    for outputs in ("text", b"bytes", 3, np.array(3.0), None, {1, 2}):
        with pytest.raises(InvalidParameter, match="outputs"):
            read(outputs)
    for worlds in ([0, 1], [0.5, 1.0], [[True]], [True], "ab", [None, None]):
        with pytest.raises(InvalidParameter, match="worlds"):
            read_worlds(worlds, 2)


@settings(max_examples=effort(3, 1000))
@given(st.integers(0, 30), st.booleans(), st.booleans(), st.floats(0.3, 40))
def test_the_text_of_a_witness_describes_its_counts(
    seed: int, whole: bool, mixed: bool, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    runs = 2000
    worlds = rng.integers(0, 2, runs).astype(bool)
    drawn = rng.laplace(0, scale, runs) + 2 * scale * worlds
    drawn = np.rint(drawn) if whole else drawn
    outputs: list[Any] = [int(x) if whole else float(x) for x in drawn]
    if mixed:
        for i in range(0, runs, 7):
            outputs[i] = "high" if worlds[i] else None
    half = runs // 2
    rule = learn_rule(tally_of(outputs[:half], worlds[:half]))
    trial = Trial.of(rule, read(outputs[half:]), worlds[half:])
    for expert in range(4):
        witness = trial.witness(expert, 0.5)
        if witness is None:
            continue
        inside = np.array([holds(witness.event, x) for x in outputs[half:]])
        assert witness.inside_a == np.count_nonzero(inside & ~worlds[half:])
        assert witness.inside_b == np.count_nonzero(inside & worlds[half:])
        assert witness.runs_a + witness.runs_b == half


def test_counts_are_not_recomputed_from_rates() -> None:
    worlds = np.arange(200) < 100
    outputs = np.where(worlds, (np.arange(200) < 29).astype(int), 0)
    trial = Trial.of(learn_rule(tally_of(outputs, worlds)), read(outputs), worlds)
    witness = trial.witness(0, 0.0)
    assert witness is not None
    assert (witness.event, witness.inside_b, witness.runs_b) == ("output >= 1", 29, 100)


def test_the_text_of_edge_cases_of_events() -> None:
    numbers = np.concatenate((np.linspace(0, 1, 4000), np.full(60, 0.5)))
    cells = tally_of(numbers, np.arange(len(numbers)) % 2 == 0).cells()
    chosen = np.zeros(cells.counts.shape[1], dtype=bool)
    chosen[cells.locate(read(np.array([0.5])))[0]] = True
    assert [words for words, _ in cells.pieces(chosen, integral=False)] == ["{0.5}"]
    chosen[:] = True
    assert [words for words, _ in cells.pieces(chosen, integral=False)] == ["-inf < output < inf"]
    assert wording(["{3}"]) == "output in {3}"
    for output in (np.array([4]), np.array([[0.5]]), np.array([4], dtype=np.uint8), np.int8(2)):
        line = read([output]).numbers
        (place,) = line.listed()
        assert place.words == repr(output)
    assert NumberLine.of_floats(np.array([]), "float").integral


def test_a_witness_among_huge_integers_describes_its_counts() -> None:
    """Beyond 2^53, x - 1 is the same float: a half-open cell must not contain its end."""
    rng = np.random.default_rng(1)
    worlds = draw_worlds(400, rng)
    rare = rng.random(400)
    outputs = np.where(
        worlds,
        np.where(rare < 0.8, 1e17, 1e17 + 16),
        np.where(rare < 0.97, 1e17 - 16, 1e17 + 16),
    )
    witness = gather(outputs, worlds, seed=7).followed(1)[1]
    assert witness is not None
    inside = in_event(witness.event, outputs)
    few, many = sorted((int((inside & worlds).sum()), int((inside & ~worlds).sum())))
    assert few * 20 < many


def test_a_witness_names_only_the_pieces_with_most_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = [0] * 5 + [1] * 2 + [2] * 9 + ["x"] * 4 + ["y"] * 7 + ["z"]
    cells = Tally.empty().add(read(outputs), np.ones(len(outputs), dtype=bool)).cells()
    chosen = np.array([True, False, True, True, True, True, True])  # all but 1; unknown values too
    fresh = np.arange(14).reshape(2, 7)
    places = []
    for most in (1, 2, 3, 9):
        monkeypatch.setattr(event, "_MOST_PIECES", most)
        found = witness_of(cells, chosen, fresh, "B", integral=True)
        assert found is not None
        assert found.where is not None
        places.append(np.flatnonzero(found.where.chosen).tolist())
        assert found.inside_a == sum(places[-1]) == found.inside_b - 7 * len(places[-1])
    assert places == [[2], [2, 4], [0, 2, 4], [0, 2, 3, 4, 5]]
    assert witness_of(cells, np.arange(7) == 6, fresh, "A", integral=True) is None
