"""Tests that each call gets a fresh copy of the dataset and that outputs are copied on return."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import audit.targets.target
from audit.errors import TargetFailed
from audit.outputs.identity import identity
from audit.replay.replay_both import replay
from audit.replay.sensitivity import declare
from audit.targets.target_syntax import as_target
from audit.training.check_dpsgd_step import dpsgd
from dpcore import SeededRng
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.audit.targets.test_target import block, drawn
from tests.day_and_nightly import effort
from tests.support.audit.training_steps import RATE, RECORDS, STATED, Right

Values = st.SearchStrategy[Any]
ALPHA = buy_alpha("copies: mechanisms that work in place keep their epsilon", "1e-9")


@dataclass
class Record:
    held: Any
    more: list[int] = field(default_factory=list)


class Opaque:
    """An object without its own equality."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return f"Opaque({identity(self.held)})"


class Slotted(list[Any]):
    __slots__ = ("held",)


ATOMS: Values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ARRAYS: Values = st.builds(
    lambda kind, shape: np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind),
    st.sampled_from(["int64", "float32", "uint8", "bool", "complex128", ">f8"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
KEYS = st.integers(0, 3) | st.text(max_size=2)


def _within(inner: Values) -> Values:
    cells = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        inner.map(lambda one: [one, one]),  # the same object twice
        cells.map(lambda cells: np.array([*cells, None], dtype=object)[:-1]),
        cells.map(lambda cells: pd.DataFrame({"cell": pd.Series(cells, dtype=object)})),
        inner.map(Record),
        st.lists(inner, max_size=2).map(Slotted),
    )


LEAVES: Values = st.one_of(
    ATOMS,
    ARRAYS,
    st.sets(st.integers(), max_size=3),
    st.binary(max_size=3).map(bytearray),
    st.text(max_size=3).map(Counter),
    st.lists(st.integers(0, 9), max_size=3).map(pd.Series),
)
OUTPUTS: Values = st.recursive(LEAVES, _within, max_leaves=6)
DATASETS: Values = st.recursive(LEAVES | LEAVES.map(Opaque), _within, max_leaves=6)


def spoil(value: Any) -> None:
    """Mutate every mutable part in place."""
    for inner in _parts(value):
        spoil(inner)
    match value:
        case pd.DataFrame():
            value[f"column {len(value.columns)}"] = 7
        case pd.Series():
            value.loc[len(value)] = 7
        case np.ndarray() if not value.dtype.hasobject:
            value[...] = ~value if value.dtype == bool else value + 1
        case list() | bytearray():
            value.append(len(value))
        case dict():
            value[f"key {len(value)}"] = 7
        case set():
            value.add(f"item {len(value)}")
        case Record() | Opaque():
            value.held = [value.held]


def _parts(value: Any) -> list[Any]:
    match value:
        case pd.DataFrame():
            return [*value.to_numpy().ravel()]
        case np.ndarray() if value.dtype.hasobject:
            return [*value.ravel().tolist()]
        case list() | tuple():
            return [*value]
        case dict():
            return [*value.values()]
        case Record() | Opaque():
            return [*vars(value).values()]
    return []


def calls_that_saw_another_dataset(dataset: Any) -> int:
    before, seen = str(identity(dataset)), []

    def spoils(given: Any) -> Any:
        seen.append(str(identity(given)))
        spoil(given)
        return 0

    list(as_target("spoils", spoils).draw(block((dataset, dataset), runs=5)))
    return sum(text != before for text in (*seen, str(identity(dataset))))


def outputs_that_changed_later(buffer: Any) -> int:
    then: list[str] = []

    def returns_its_buffer(_: Any) -> Any:
        spoil(buffer)
        then.append(str(identity(buffer)))
        return buffer

    target = as_target("returns_its_buffer", returns_its_buffer)
    outputs = [output for piece in target.draw(block((0, 1), runs=4)) for output in piece]
    return sum(str(identity(output)) != text for output, text in zip(outputs, then, strict=True))


@settings(max_examples=effort(20, 3000))
@given(dataset=DATASETS)
@example(dataset=pd.DataFrame({"cell": pd.Series([Opaque(np.arange(2).astype(">f8"))])}))
def test_each_call_gets_an_unchanged_copy_of_the_dataset(dataset: Any) -> None:
    assert calls_that_saw_another_dataset(dataset) == 0


@settings(max_examples=effort(20, 3000))
@given(buffer=OUTPUTS)
def test_an_output_is_copied_when_it_is_returned(buffer: Any) -> None:
    assert outputs_that_changed_later(buffer) == 0


def copy_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit.targets.target, "copies", lambda _, dataset: lambda: dataset)
    monkeypatch.setattr(audit.targets.target, "captured", lambda output, _: output)


def test_property_tests_detect_a_missing_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_nothing(monkeypatch)
    for make in (lambda: [1], lambda: np.zeros(2), lambda: pd.DataFrame({"cell": [[1]]})):
        assert calls_that_saw_another_dataset(make()) > 0
        assert outputs_that_changed_later(make()) > 0


def noise(rng: np.random.Generator, shape: Any) -> Any:
    p = -np.expm1(-1.0)
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def nested_in_place(record: Any, rng: np.random.Generator) -> Any:
    record.held["counts"] += noise(rng, 2)
    return record.held["counts"]


def test_a_correct_mechanism_that_works_in_place_is_not_refuted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found() -> Any:
        pair = (Record({"counts": np.zeros(2, int)}), Record({"counts": np.array([1, 0])}))
        options: Any = {"runs": 800, "seed": 7, "confidence": 1 - ALPHA}
        return audit.audit(nested_in_place, "epsilon=1", pair=pair, **options)

    assert found().verdict == "not_refuted"
    copy_nothing(monkeypatch)
    assert found().refuted


def test_a_buffer_of_many_outputs_is_copied_before_the_other_dataset_is_drawn() -> None:
    buffer = np.zeros(400)

    def fills(dataset: int, n: int, rng: np.random.Generator) -> Any:
        buffer[:n] = dataset
        return buffer[:n]

    outputs = np.array(drawn(as_target("fills", fills)))
    worlds = block((0, 1)).worlds
    assert (outputs == worlds).all()

    lists: list[list[int]] = [[0] for _ in range(400)]

    def fills_lists(dataset: int, n: int, rng: np.random.Generator) -> Any:
        for one in lists:
            one[0] = dataset
        return lists[:n]

    assert drawn(as_target("fills_lists", fills_lists)) == [[int(world)] for world in worlds]


def test_replay_copies_datasets_and_outputs() -> None:
    total = np.zeros(1, dtype=np.int64)

    def into_a_buffer(values: Any, rng: np.random.Generator) -> Any:
        declare(threading.Lock(), "a lock")  # cannot be copied, and differs between runs
        values.sort()
        np.add(values.sum(), noise(rng, 1), out=total)
        return total

    pair = (np.array([3, 1]), np.array([9, 1]))
    report = replay(into_a_buffer, pair, sensitivity=1, changes=20)
    (moved,) = (each for each in report.findings if each.kind == "sensitivity-exceeded")
    assert moved.witness["b"] - moved.witness["a"] == 6
    assert pair[0].tolist() == [3, 1]


def test_batches_returned_in_one_buffer_are_distinguished() -> None:
    class Shuffles(Right):
        order = np.arange(RECORDS)

        def sample(self, rng: np.random.Generator) -> Any:
            rng.shuffle(self.order)
            return self.order[: rng.binomial(RECORDS, RATE)]

    report = dpsgd(Shuffles, **STATED, alpha=1e-9, dimension=20, draws=400, seed=3)
    assert [check.name for check in report.checks if check.failed] == []


def test_a_dataset_that_cannot_be_copied_is_refused() -> None:
    def never(dataset: Any) -> int:
        raise AssertionError("called")

    cases: list[tuple[Any, str]] = [
        ((x for x in [1]), "is of type generator, which cannot be copied"),
        ([threading.Lock()], "is of type list, which cannot be copied"),
        ({"coins": np.random.default_rng(1)}, r"contains a random generator \(Generator\)"),
        (Record(SeededRng(1)), r"contains a random generator \(SeededRng\)"),
    ]
    for dataset, reason in cases:
        with pytest.raises(InvalidParameter, match=f"^dataset B = .*{reason}"):
            audit.audit(never, "epsilon=1", pair=(0, dataset))
        with pytest.raises(InvalidParameter, match=f"^dataset A = .*{reason}"):
            replay(never, (dataset, 0))
    with pytest.raises(InvalidParameter, match=r"^dataset A = .* must be a JSON value"):
        audit.audit("exec:cat", "epsilon=1", pair=(np.zeros(1), 0))


def test_an_uncopyable_output_that_changes_later_is_refused() -> None:
    kept = Opaque(0)

    def counts(dataset: int) -> Opaque:
        kept.held += dataset
        return kept

    assert set(map(id, drawn(as_target("counts", counts), pair=(0, 0)))) == {id(kept)}
    with pytest.raises(TargetFailed, match="returned the same Opaque object again after changing"):
        drawn(as_target("counts", counts))
