"""Tests of `audit.statistical_tests.trace`: histogram counts, and bounds equal to the report's."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit.broken_mechanisms import ENTRIES, Entry
from audit.claims import Claim
from audit.formats.result import plain
from audit.outputs.output_parser import Outputs, draw_worlds, join
from audit.outputs.reading import read
from audit.report.figure_data import Bin, histogram
from audit.statistical_tests.anytime_valid_test import watch
from audit.statistical_tests.event import Witness
from audit.statistical_tests.multiple_testing import View
from audit.statistical_tests.prequential_fixed_runs_test import block_ends, gather
from audit.statistical_tests.trace import Trace, trace
from tests.day_and_nightly import by_day
from tests.support.audit.parse_witness import in_event, worded

RUNS = 2000
HALF_SCALE = next(entry for entry in ENTRIES if entry.name == "half-scale")


def drawn(entry: Entry, runs: int = RUNS, seed: int = 1) -> tuple[Outputs, Any]:
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    in_b = int(worlds.sum())
    sides = [entry.run(entry.pair[i], n, rng) for i, n in ((0, runs - in_b), (1, in_b))]
    return join(sides[0], sides[1], worlds, rng), worlds


def traced(outputs: Outputs, worlds: Any, *, watched: bool) -> Trace:
    """The trace of an audit of one view."""
    views = [View(outputs=outputs, worlds=worlds)]
    return trace(views, Claim(epsilon=1), seed=7, watched=watched)


def retold(witness: Witness, outputs: Outputs, worlds: Any, inside: Any) -> bool:
    """Whether the mask has the witness's counts on some block that the audit tested."""
    ends = block_ends(len(worlds))
    counts = []
    for start, end in pairwise(ends):
        part, marked = worlds[start:end], inside[start:end]
        counts.append((int((marked & ~part).sum()), int((marked & part).sum()), end - start))
    runs = witness.runs_a + witness.runs_b
    return (witness.inside_a, witness.inside_b, runs) in counts


@by_day(3)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_event_parsed_from_its_text_has_the_counts_of_the_witness(entry: Entry) -> None:
    outputs, worlds = drawn(entry)
    witness = gather(outputs, worlds, seed=7).followed(entry.epsilon, entry.delta)[1]
    if witness is not None:
        assert witness.where is not None
        inside = witness.where.holds(read(outputs))
        assert retold(witness, outputs, worlds, inside)
        assert inside.tolist() == in_event(witness.event, outputs).tolist()
        at = histogram(outputs, worlds, witness.event, inside, witness.where.spans())
        told = worded(outputs, worlds, witness.event)
        assert [cell.covered for cell in at.bins] == [cell.covered for cell in told.bins]


anything = st.one_of(
    st.integers(-60, 60),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
)


@given(
    st.one_of(
        st.lists(anything, max_size=120),
        st.lists(st.floats(allow_nan=False), max_size=120),
        st.lists(st.floats(-1e-310, 1e-310), max_size=60),
        st.lists(st.floats(1e16, 1.0001e16), max_size=60),
    ),
    st.randoms(use_true_random=False),
)
@example([*map(float, range(20)), 1.7e308, math.inf], Random(1))
@example([*map(float, range(20)), -1.7e308, -math.inf], Random(1))
def test_every_run_is_in_one_bin(outputs: list[Any], random: Any) -> None:
    worlds = np.array([random.random() < 0.5 for _ in outputs], dtype=np.bool_)
    marked = in_event("output >= 0 or output in {None}", outputs)
    found = histogram(outputs, worlds, "output >= 0 or output in {None}", marked)
    assert len(found.bins) <= 42
    assert sum(cell.count_a for cell in found.bins) == found.runs_a == (~worlds).sum()
    assert sum(cell.count_b for cell in found.bins) == found.runs_b == worlds.sum()
    assert sum(cell.inside_a for cell in found.bins) == (marked & ~worlds).sum()
    assert sum(cell.inside_b for cell in found.bins) == (marked & worlds).sum()
    for cell in found.bins:
        assert 0 <= cell.inside_a <= cell.count_a
        assert 0 <= cell.inside_b <= cell.count_b
    for told, cell in zip(json.loads(json.dumps(plain(found)))["bins"], found.bins, strict=True):
        assert told.pop("in_witness") == cell.in_witness
        assert Bin(**{**told, "covered": tuple(map(tuple, told["covered"]))}) == cell


# -0.0 has a bin of its own, so these inputs exclude it.
@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: x + 0.0), min_size=50, max_size=120),
    st.integers(0, 2**32),
)
def test_a_number_is_counted_in_the_bin_whose_label_contains_it(
    numbers: list[float], seed: int
) -> None:
    worlds = np.random.default_rng(seed).random(len(numbers)) < 0.5
    for cell in histogram(numbers, worlds).bins:
        low = -math.inf if cell.low is None else cell.low
        high = math.inf if cell.high is None else cell.high
        held = [low == x if low == high else low <= x < high for x in numbers]
        assert cell.runs == sum(held), cell


def test_few_integers_have_a_bin_each_and_many_share_bins() -> None:
    worlds = np.arange(4000) % 2 == 0
    few = histogram(np.arange(4000) % 30 - 10, worlds)
    assert [cell.label for cell in few.bins] == [str(k) for k in range(-10, 20)]
    many = histogram(np.arange(4000), worlds)
    assert [cell.label for cell in many.bins[:2]] == ["0 to 199", "200 to 399"]
    assert sum(cell.runs for cell in many.bins) == 4000
    # An outlier does not merge the other values into one bin.
    stretched = histogram(np.append(np.arange(3999), 10**9), worlds)
    assert len(stretched.bins) > 20
    assert stretched.bins[-1].low is not None
    assert stretched.bins[-1].high is None


@by_day(1)
@pytest.mark.parametrize("watched", [False, True])
def test_the_last_point_is_the_bound_of_the_report(watched: bool) -> None:
    outputs, worlds = drawn(HALF_SCALE, 1000)
    found = traced(outputs, worlds, watched=watched)
    bounds = [bound for _, bound in found.points]
    runs = [runs for runs, _ in found.points]
    assert runs == sorted(set(runs))
    assert 12 <= len(runs) <= 20
    if watched:  # the bounds hold simultaneously and never fall
        assert (found.holds, bounds) == ("together", sorted(bounds))
        assert found.points[-1] == (1000, watch(1).update(outputs, worlds).epsilon_lower())
        return
    for runs_so_far, bound in found.points[::8]:
        alone = gather(outputs[:runs_so_far], worlds[:runs_so_far], seed=7).epsilon_lower("0.05")
        assert bound <= alone
    assert found.points[-1] == (1000, gather(outputs, worlds, seed=7).epsilon_lower("0.05"))


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("runs", [0, 1, 31, 64, 65, 100])
def test_short_audits_have_short_traces(runs: int, watched: bool) -> None:
    worlds = np.arange(runs) % 2 == 0
    found = traced(worlds.astype(int), worlds, watched=watched)
    assert [count for count, _ in found.points][-1:] == [runs][: runs and 1]
    told = json.loads(json.dumps(plain(found), allow_nan=False))["points"]
    assert [(each["runs"], each["epsilon_lower"]) for each in told] == list(found.points)
