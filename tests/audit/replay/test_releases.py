r"""Tests of replay on DataFrames, arrays, records, text and errors, faulty and correct versions."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import audit
from audit.replay.replay_both import replay
from audit.replay.replay_report import Finding, ReplayReport
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.replay_targets import releases

ROWS = [["mon", 3.0], ["tue", 9.0], ["mon", 4.0]]
NEXT_DAY = ([*ROWS, ["mon", 7.0]], [*ROWS, ["wed", 7.0]])
LAST = ([*ROWS, ["mon", 7.0]], [*ROWS, ["mon", 1.0]])
NAMES = (["ada", "ben"], ["ben", "eve"])


def _errors(report: ReplayReport) -> dict[str, Finding]:
    return {found.kind: found for found in report.findings if found.severity == "error"}


FAULTS: list[tuple[Callable[..., Any], Callable[..., Any], Any, str, str]] = [
    (releases.array_type, releases.array_type_fixed, ([1, 2], [1, 2.5]), "structure", "of int"),
    (releases.mean_with_nan, releases.mean_without_nan, ([1.0, 2.0], [1.0, float("nan")]),
     "unnoised-part", "output[0] is some number for dataset A and nan for dataset B"),
    (releases.record, releases.noisy_record, ([1], [1, 1]), "unnoised-part", "output.people is 1 "),
    (releases.told, releases.told_in_words, NAMES, "unnoised-part", "visitors, the first is ben"),
    (releases.fails_on_data, releases.clips, ([1, 2], [1, 900]), "raises", "other dataset does"),
    (releases.fails_with_the_data, releases.fails_in_fixed_words, NAMES,
     "raises", "the text of the error depends on the data"),
    (releases.only_days_that_occur, releases.by_day, NEXT_DAY, "structure", "(3 float)"),
    (releases.index_of_the_data, releases.index_forgotten, LAST, "structure", "of the index"),
]  # fmt: skip


@by_day(3)
@pytest.mark.parametrize(("fault", "twin", "pair", "name", "said"), FAULTS)
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
    found = _errors(replay(releases.exact_beside_noise, days, **few))["unnoised-part"]
    assert found.statement.startswith("output.days[0] is 3 for dataset A and 4 for")
    # Numbers in a text are rounded to a unit of their last digit, and 1/4 is within that unit.
    for function, pair, below in (
        (releases.by_day, days, "refuted"),
        (releases.told_unclipped, ([3, 4], [3, 5]), "nothing_found"),
        (releases.names_known, (["ada"], ["ada", "ben"]), "refuted"),
    ):
        assert replay(function, pair, sensitivity=1, **few).verdict == "nothing_found"
        assert replay(function, pair, sensitivity="1/4", **few).verdict == below
    far = replay(releases.told_unclipped, ([3, 4], [3, 40]), sensitivity=1, **few)
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
    report = replay(releases.index_of_the_data, LAST, **few)
    assert report.verdict == "refuted"
    assert "the declared output shape" in str(report).splitlines()[0]
    assert replay(releases.index_forgotten, LAST, **few).exit_code == 0


def test_declared_sensitivities_are_checked() -> None:
    pair = ([3, 4], [3, 400])
    changed = "clipped sum changes by 396 (l1), more than the declared 10"
    for function, name, said in (
        (releases.declares_the_largest, "declared-equal", "clipping bound differs"),
        (releases.declares_unclipped, "declared-sensitivity", changed),
    ):
        report = replay(function, pair, changes=20)
        found = _errors(report)[name]
        assert (report.verdict, found.refutes) == ("refuted", True)
        assert said in found.statement
    assert replay(releases.declares_clipped, pair, changes=20).verdict == "nothing_found"


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
