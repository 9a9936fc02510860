r"""Tests of replay on DataFrames, arrays, records, text and errors, faulty and correct versions."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import audit
from audit.replay.replay_both import replay
from audit.replay.replay_report import Finding, ReplayReport
from audit.replay.sensitivity import declare
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from tests import day_and_nightly

NOISE = DiscreteLaplace(scale=1)
DAYS = ("mon", "tue", "wed")


def _counts(rows: list[list[Any]]) -> dict[str, int]:
    return {day: sum(row[0] == day for row in rows) for day in DAYS}


def by_day(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """The correct twin of the next ones: all days, also days without visits."""
    noisy = {day: count + rng.laplace() for day, count in _counts(rows).items()}
    frame = pd.DataFrame({"day": list(noisy), "visits": list(noisy.values())})
    return frame.set_index("day")


def only_days_that_occur(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """A row for each day in the data, as groupby creates."""
    frame = pd.DataFrame(rows, columns=["day", "amount"]).groupby("day")["amount"].count()
    return frame.astype(float) + rng.laplace(size=len(frame))


def index_of_the_data(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """The same number of rows, with the index labels of the data, as after sort_values."""
    frame = pd.DataFrame(rows, columns=["day", "amount"]).sort_values("amount")
    frame["amount"] = rng.laplace(size=len(frame))
    return frame[["amount"]]


def exact_beside_noise(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """One column is noisy, the other is exact."""
    counts = _counts(rows)
    noisy = [count + rng.laplace() for count in counts.values()]
    return pd.DataFrame({"visits": noisy, "days": [len(rows)] * len(noisy)})


@dataclass(frozen=True)
class Answer:
    total: float
    people: int


def names_known(names: list[str]) -> dict[str, Any]:
    return {"visits": {name: (name in names) + NOISE.sample() for name in ("ada", "ben", "eve")}}


def told_unclipped(amounts: list[int]) -> str:
    return f"total: {sum(amounts) + NOISE.sample()} euros"


def fails_on_data(amounts: list[int]) -> int:
    if max(amounts) > 100:
        raise ValueError("an amount is too large")
    return sum(amounts) + NOISE.sample()


def fails_with_the_data(names: list[str], rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        raise KeyError(min(names))
    return len(names) + NOISE.sample()


def fails_in_fixed_words(names: list[str], rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        raise KeyError("no answer")
    return len(names) + NOISE.sample()


def declares_clipped(amounts: list[int]) -> int:
    top = declare(10, "clipping bound")
    total = declare(sum(min(x, top) for x in amounts), "clipped sum", sensitivity=10)
    return total + DiscreteLaplace(scale=10).sample()


def declares_the_largest(amounts: list[int]) -> int:
    """The declared bound depends on the data; the noise is correct."""
    top = declare(max(amounts), "clipping bound")
    return sum(min(x, top) for x in amounts) + DiscreteLaplace(scale=100).sample()


def declares_unclipped(amounts: list[int]) -> int:
    total = declare(sum(amounts), "clipped sum", sensitivity=10)
    return total + DiscreteLaplace(scale=10).sample()


ROWS = [["mon", 3.0], ["tue", 9.0], ["mon", 4.0]]
NEXT_DAY = ([*ROWS, ["mon", 7.0]], [*ROWS, ["wed", 7.0]])
LAST = ([*ROWS, ["mon", 7.0]], [*ROWS, ["mon", 1.0]])
NAMES = (["ada", "ben"], ["ben", "eve"])


def _errors(report: ReplayReport) -> dict[str, Finding]:
    return {found.kind: found for found in report.findings if found.severity == "error"}


def index_forgotten(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    return index_of_the_data(rows, rng).reset_index(drop=True)


# The fault and its correct twin, the pair, and the finding.
FAULTS: list[tuple[Callable[..., Any], Callable[..., Any], Any, str, str]] = [
    (lambda amounts, rng: np.zeros_like(np.array(amounts)) + int(rng.integers(9)),
     lambda amounts, rng: np.zeros_like(np.array(amounts), dtype=float) + int(rng.integers(9)),
     ([1, 2], [1, 2.5]), "structure", "of int"),
    # A record that is nan makes every answer nan.
    (lambda amounts, rng: np.array([np.mean(amounts) + rng.laplace(), rng.laplace()]),
     lambda amounts, rng: np.array([np.nanmean(amounts) + rng.laplace(), rng.laplace()]),
     ([1.0, 2.0], [1.0, float("nan")]),
     "unnoised-part", "output[0] is some number for dataset A and nan for dataset B"),
    # The exact size beside a noisy total; text that names a person.
    (lambda amounts, rng: Answer(sum(amounts) + rng.laplace(), len(amounts)),
     lambda amounts, rng: Answer(sum(amounts) + rng.laplace(), len(amounts) + NOISE.sample()),
     ([1], [1, 1]), "unnoised-part", "output.people is 1 "),
    (lambda names: f"{len(names) + NOISE.sample()} visitors, the first is {min(names)}",
     lambda names: f"{len(names) + NOISE.sample()} visitors",
     NAMES, "unnoised-part", "visitors, the first is ben"),
    (fails_on_data, lambda amounts: sum(min(amount, 100) for amount in amounts) + NOISE.sample(),
     ([1, 2], [1, 900]), "raises", "other dataset does"),
    (fails_with_the_data, fails_in_fixed_words, NAMES,
     "raises", "the text of the error depends on the data"),
    (only_days_that_occur, by_day, NEXT_DAY, "structure", "(3 float)"),
    (index_of_the_data, index_forgotten, LAST, "structure", "of the index"),
]  # fmt: skip


@day_and_nightly.by_day(2)
@pytest.mark.parametrize(
    ("fault", "twin", "pair", "name", "said"), FAULTS, ids=[said for *_, said in FAULTS]
)
def test_differences_beside_values_are_found(
    fault: Callable[..., Any], twin: Callable[..., Any], pair: Any, name: str, said: str
) -> None:
    found = _errors(replay(fault, pair, changes=20, tapes=12))
    assert name in found, found
    assert said in found[name].statement
    assert not found[name].refutes
    assert _errors(replay(twin, pair, changes=20, tapes=12)) == {}


def test_the_sensitivity_of_tables_records_and_texts_is_checked() -> None:
    days: Any = (ROWS, [*ROWS, ["wed", 7.0]])
    few: Any = {"changes": 5, "tapes": 8}
    found = _errors(replay(exact_beside_noise, days, **few))["unnoised-part"]
    assert found.statement.startswith("output.days[0] is 3 for dataset A and 4 for")
    # Numbers in a text are rounded to a unit of their last digit, and 1/4 is within that unit.
    for function, pair, below in (
        (by_day, days, "refuted"),
        (told_unclipped, ([3, 4], [3, 5]), "nothing_found"),
        (names_known, (["ada"], ["ada", "ben"]), "refuted"),
    ):
        assert replay(function, pair, sensitivity=1, **few).verdict == "nothing_found"
        assert replay(function, pair, sensitivity="1/4", **few).verdict == below
    far = replay(told_unclipped, ([3, 4], [3, 40]), sensitivity=1, **few)
    assert far.verdict == "refuted"


def test_bytes_dates_and_complex_numbers_are_labels_in_a_replay() -> None:
    day = dt.date(2020, 1, 1)
    shown: list[Callable[[float], object]] = [
        lambda x: struct.pack("d", x),
        lambda x: day + dt.timedelta(days=10**4 * round(x)),
        lambda x: complex(0, 10 * x),
    ]
    for of in shown:
        report = replay(
            lambda x, rng, of=of: (x + rng.laplace(), of(x)), (0, 1), sensitivity=1, changes=5
        )
        assert "sensitivity-not-compared" in {found.kind for found in report.findings}

    def rounded(x: float, rng: np.random.Generator) -> str:
        return json.dumps({"mean": round(x + rng.laplace(), 1)})

    assert replay(rounded, (0.0, 0.05), sensitivity="0.05", changes=5).verdict != "refuted"
    assert replay(rounded, (0.0, 0.5), sensitivity="0.05", changes=5).verdict == "refuted"


def test_strict_refutes_an_index_that_depends_on_the_data() -> None:
    few: Any = {"strict": True, "changes": 5, "tapes": 8}
    report = replay(index_of_the_data, LAST, **few)
    assert report.verdict == "refuted"
    assert "the declared output shape" in str(report).splitlines()[0]
    assert replay(index_forgotten, LAST, **few).exit_code == 0


def test_declared_sensitivities_are_checked() -> None:
    pair = ([3, 4], [3, 400])
    changed = "clipped sum changes by 396 (l1), more than the declared 10"
    for function, name, said in (
        (declares_the_largest, "declared-equal", "clipping bound differs"),
        (declares_unclipped, "declared-sensitivity", changed),
    ):
        report = replay(function, pair, changes=20)
        found = _errors(report)[name]
        assert (report.verdict, found.refutes) == ("refuted", True)
        assert said in found.statement
    assert replay(declares_clipped, pair, changes=20).verdict == "nothing_found"


def test_declare_returns_its_value_and_refuses_invalid_sensitivities() -> None:
    value = [1, 2]
    assert audit.declare(value, "counts", sensitivity=1) is value
    with pytest.raises(InvalidParameter, match="sensitivity"):
        audit.declare(value, "counts", sensitivity=-1)
    wrong: Any = "l3"
    with pytest.raises(InvalidParameter, match="norm"):
        audit.declare(value, "counts", norm=wrong)


def test_a_replay_without_draws_and_differences_measures_nothing() -> None:
    for allowed, verdict, code in ((False, "nothing_measured", 4), (True, "nothing_found", 0)):
        report = replay(lambda _: 3, (0, 1), changes=5, allow_constant=allowed)
        assert (report.verdict, report.exit_code) == (verdict, code)
        options: Any = {"pair": (0, 1), "layers": "replay", "allow_constant": allowed}
        assert audit.audit(lambda _: 3, "epsilon=1", **options).exit_code == code
