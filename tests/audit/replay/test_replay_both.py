"""Tests of replay findings: each is reported for a faulty mechanism, not for its twin."""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit.replay.replay_both
import audit.replay.rng_hooks
from audit.errors import TargetFailed
from audit.replay.replay_both import MOST_HANGS
from audit.replay.replay_report import Finding, ReplayReport
from audit.replay.rng_hooks import hooked_rngs
from audit.replay.sensitivity import declare
from audit.replay.tape import EXTREMES, Tape
from audit.targets.target_syntax import read_target
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day, effort
from tests.support.replay_targets import correct, faulty

AMOUNTS = (0.25, 0.75)


def replay(*given: Any, changes: int = 60, **options: Any) -> ReplayReport:
    return audit.replay.replay_both.replay(*given, changes=changes, **options)


def kinds(report: ReplayReport, severity: str = "error") -> set[str]:
    return {found.kind for found in report.findings if found.severity == severity}


def only(report: ReplayReport, kind: str) -> Finding:
    (found,) = (found for found in report.findings if found.kind == kind)
    return found


# -- correct mechanisms ------------------------------------------------------------------------

CORRECT: list[tuple[Callable[..., Any], tuple[Any, Any], dict[str, Any]]] = [
    (correct.counter, (0, 1), {"sensitivity": 1, "strict": True}),
    (correct.reference_counter, (0, 1), {"sensitivity": 1, "strict": True}),
    (correct.narrow_counter, (0, 1), {"sensitivity": 1, "strict": True}),
    (correct.numpy_counter, (0, 1), {"sensitivity": 1, "strict": True}),
    (correct.many, (0, 1), {"sensitivity": 1, "strict": True}),
    (correct.sparse_vector, ([0, 0, 1], [1, 1, 0]), {}),
    (correct.noisy_max, ([0, 1, 1], [1, 0, 0]), {}),
    (correct.largest_of_histogram, ([5, 1, 5], [5, 2, 5]), {"sensitivity": 1}),
    (correct.largest_of_histogram, ([1, 0, 0], [2, 0, 0]), {"sensitivity": 1}),
    (correct.randomised_response, (0, 1), {}),
    (correct.of_many, (3, 150), {}),
    (correct.clamped, (0, 1), {"sensitivity": 1}),
    (correct.size_and_noise, ([1, 0, 1], [1, 0, 1, 1]), {"sensitivity": 1}),
    (faulty.clamped_to_public, ([1, 0], [1, 9]), {"sensitivity": 1}),
    (faulty.leaks_not, AMOUNTS, {"sensitivity": 1}),
    (faulty.float_sum, ([0.1, 0.2], [0.1, 1.2]), {"sensitivity": 1, "strict": True}),
]


@by_day(4)
@pytest.mark.parametrize(("function", "pair", "declared"), CORRECT)
def test_a_correct_mechanism_has_no_findings_of_severity_error(
    function: Callable[..., Any], pair: tuple[Any, Any], declared: dict[str, Any]
) -> None:
    report = replay(function, pair, changes=150, **declared)
    assert kinds(report) == set(), str(report)
    assert report.verdict == "nothing_found"
    assert report.exit_code == 0


def test_noise_of_dpcore_can_be_replayed_and_a_program_cannot() -> None:
    report = replay(read_target("discrete-laplace:scale=1"), (0, 1), sensitivity=1, strict=True)
    assert report.verdict == "nothing_found"
    assert "at most 1 " in only(report, "sensitivity").statement
    report = replay(read_target("exec:awk 'BEGIN { print 1 }'"), (0, 1))
    assert (report.verdict, report.runs) == ("not_replayable", 0)
    assert only(report, "elsewhere")


# -- the catalogue -----------------------------------------------------------------------------


LEAKS = [
    faulty.leaks_by_random,
    faulty.leaks_by_numpy,
    faulty.leaks_by_secrets,
    faulty.leaks_after_two,
]


@by_day(1)
@pytest.mark.parametrize("function", LEAKS)
def test_a_branch_without_noise_is_found_by_extreme_draws(function: Callable[..., Any]) -> None:
    report = replay(function, AMOUNTS, changes=500)
    found = only(report, "unnoised-branch")
    assert (found.severity, found.refutes) == ("error", False)
    assert report.verdict == "found"
    assert (found.witness["a"], found.witness["b"]) == AMOUNTS
    # The witness can be replayed.
    changes = {
        (place.rpartition("[")[0], int(place.rpartition("[")[2][:-1])): value
        for place, value in found.witness["changed"].items()
    }
    tape = Tape(found.witness["tape"], changes)
    with hooked_rngs(function) as session:
        rng = {"rng": session.given()} if "rng" in function.__annotations__ else {}
        assert session.play(tape, lambda: function(0.25, **rng)) == 0.25


def test_without_extreme_draws_a_branch_without_noise_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit.replay.replay_both, "EXTREMES", {"middle": EXTREMES["middle"]})
    assert kinds(replay(faulty.leaks_by_numpy, AMOUNTS)) == set()
    monkeypatch.undo()
    assert kinds(replay(faulty.leaks_by_numpy, AMOUNTS, changes=0)) == set()


# -- sensitivity, draws, shape -----------------------------------------------------------------


def test_bounds_from_the_data_exceed_the_declared_sensitivity() -> None:
    report = replay(faulty.clamped_to_data, ([1, 0, 0], [1, 0, 5]), sensitivity=1)
    found = only(report, "sensitivity-exceeded")
    assert found.refutes
    assert Fraction(found.witness["difference"]) == 5


def test_sensitivity_is_measured_in_the_declared_norm() -> None:
    pair = ([0, 0], [3, 4])
    for norm, exceeded in (("l1", True), ("l2", False), ("linf", False)):
        found = kinds(replay(faulty.one_noise, pair, sensitivity=5, norm=norm, changes=5))
        assert ("sensitivity-exceeded" in found) is exceeded
    below = replay(faulty.one_noise, pair, sensitivity="4.99", norm="l2", changes=5)
    assert only(below, "sensitivity-exceeded").witness["difference"] == "sqrt(25)"


def test_rounding_of_floats_does_not_exceed_the_sensitivity() -> None:
    assert replay(faulty.float_sum, ([0.1] * 9, [0.1] * 8 + [1.1]), sensitivity=1).exit_code == 0
    assert replay(faulty.float_sum, ([0.1], [1.10001]), sensitivity=1).verdict == "refuted"


@pytest.mark.parametrize(
    ("function", "pair", "declared", "kind", "found"),
    [
        (faulty.scaled_noise, (0, 1), {"sensitivity": 200}, "not-additive", True),
        (correct.counter, (0, 1), {"sensitivity": 1}, "not-additive", False),
        # The runs make different draws, so their outputs are not compared.
        (correct.size_and_noise, ([1], [1, 1]), {"sensitivity": 1}, "sensitivity-not-compared",
         True),
        (correct.randomised_response, (0, 1), {}, "unnoised-branch", True),
        (faulty.partly_fixed, (0, 1), {}, "fixed-seed", True),
    ],
)  # fmt: skip
def test_what_a_review_must_explain_is_a_warning(
    function: Callable[..., Any], pair: Any, declared: dict[str, Any], kind: str, found: bool
) -> None:
    report = replay(function, pair, **declared)
    assert (kind in kinds(report, "warning")) is found
    assert report.verdict == "nothing_found"


def test_strict_declares_that_draws_do_not_depend_on_data() -> None:
    report = replay(correct.sparse_vector, ([-50, 50], [50, -50]), strict=True)
    assert only(report, "draws").refutes
    assert report.verdict == "refuted"
    assert "draws" not in kinds(replay(correct.noisy_max, ([0, 1], [1, 0]), strict=True))


def test_a_shape_that_depends_on_the_data_is_found() -> None:
    pair = ([1, 0], [1, 0, 0])
    found = only(replay(faulty.row_a_record, pair), "structure")
    assert (found.severity, found.refutes) == ("error", False)
    assert only(replay(faulty.row_a_record, pair, strict=True), "structure").refutes
    assert only(replay(correct.sparse_vector, ([0, 0], [1, 1])), "structure").severity == "note"
    report = replay(faulty.one_noise, ([1, 0], [1, 1]))
    assert "structure" not in kinds(report)
    assert only(report, "unnoised-part").statement.startswith("output[0] minus output[1]")


# -- sources of randomness ---------------------------------------------------------------------


def test_a_release_without_noise_is_an_error_but_refutes_no_claim() -> None:
    report = replay(faulty.raw, (0, 1))
    assert (report.verdict, report.exit_code) == ("found", 1)
    assert not only(report, "no-noise").refutes
    assert kinds(replay(faulty.raw, (1, 1)), "warning") == {"constant"}
    half = only(replay(faulty.raw_in_b, (0, 1)), "no-noise")
    assert (half.severity, half.refutes) == ("error", False)


def test_a_fixed_seed_is_found() -> None:
    for function in (faulty.fixed, faulty.fixed_numpy, faulty.fixed_global, faulty.fixed_bits):
        report = replay(function, (0, 1))
        assert report.verdict == "found"
        assert kinds(report) >= {"no-noise", "fixed-seed"}
        assert "20" in only(report, "fixed-seed").statement


@by_day(3)
@pytest.mark.parametrize(
    ("function", "pair", "kind"),
    [
        (faulty.early, (0, 1), "made-early"),
        (faulty.shared, ([0, 1], [1, 1]), "shared-seed"),
        (faulty.clock, (0, 1), "outside-seed"),
        (faulty.seeded_early, (0, 1), "made-early"),
        (faulty.by_random, (0, 1), "not-cryptographic"),
        (faulty.by_numpy, (0, 1), "not-cryptographic"),
    ],
)
def test_an_unsafe_source_of_randomness_gives_a_warning(
    function: Callable[..., Any], pair: tuple[Any, Any], kind: str
) -> None:
    states = faulty.MADE_EARLY, faulty.SEEDED_EARLY._stream
    report = replay(function, pair)
    assert kind in kinds(report, "warning")
    assert report.replayable
    # What a module made early is as before, and safe sources give no warning.
    assert (faulty.MADE_EARLY, faulty.SEEDED_EARLY._stream) == states
    assert kinds(replay(correct.numpy_counter, (0, 1)), "warning") == set()


# -- targets that cannot be replayed, and failures ---------------------------------------------


def test_a_target_with_its_own_entropy_is_reported() -> None:
    for function in (faulty.keeps_state, faulty.other_thread):
        report = replay(function, (0, 1))
        assert report.verdict == "not_replayable"
        assert report.exit_code == 3
        assert "own-entropy" in kinds(report, "warning")


def test_a_failure_on_a_changed_tape_is_a_finding_and_on_an_unchanged_one_of_the_target() -> None:
    report = replay(faulty.raises_rarely, (0, 1))
    assert "no logarithm of 0" in only(report, "raises").statement
    assert report.verdict == "nothing_found"
    assert "raises" in kinds(replay(faulty.raises_in_b_rarely, (0, 1)))
    with pytest.raises(TargetFailed, match=r"raised ValueError: never 0 at faulty.py:\d+"):
        replay(faulty.raises, (0, 1))


# -- the report and the command ----------------------------------------------------------------


def test_the_same_seed_repeats_the_report() -> None:
    texts = [replay(faulty.leaks_by_random, AMOUNTS, seed=3).to_text() for _ in range(2)]
    assert texts[0] == texts[1]
    found = json.loads(texts[0])
    assert found["schema"] == "dpcore-replay/2"
    assert found["findings"][0]["kind"] == "unnoised-branch"
    assert found["declared"] == {"sensitivity": None, "norm": "l1", "strict": False}


def test_invalid_options_of_a_replay_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"sensitivity": -1}, {"norm": "l3"}, {"tapes": 1}, {"tapes": 10**7}, {"changes": -1},
        {"seed": -1},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidParameter, match=next(iter(options))):
            replay(correct.counter, (0, 1), **options)
    with pytest.raises(ValueError, match="refutes"):
        Finding(kind="x", severity="note", statement="x", refutes=True)
    # The report states a deadline.
    report = replay(correct.counter, (0, 1), deadline=1e-9)
    assert report.changed == 0
    assert only(report, "not-all-draws")


# -- limits: no false proofs, no disturbed randomness, no endless runs -----------------------------


_KEPT: dict[int, int] = {}


def remembered(dataset: int) -> int:
    """A permanent answer: noise is drawn once for each dataset and stored."""
    if dataset not in _KEPT:
        _KEPT[dataset] = dataset + secrets.randbelow(1000) - 500
    return _KEPT[dataset]


def test_a_stored_answer_is_not_refuted() -> None:
    assert replay(remembered, (0, 1)).verdict != "refuted"


def test_single_precision_does_not_exceed_the_sensitivity() -> None:
    def noisy(dataset: list[float], rng: np.random.Generator) -> Any:
        noise = 100 * rng.standard_normal(3, dtype=np.float32)
        return (np.array(dataset, dtype=np.float32) + noise).tolist()

    report = replay(noisy, ([0, 0, 0], [0.6, 0.8, 0]), sensitivity=1, norm="l2")
    assert report.verdict != "refuted"
    assert replay(noisy, ([0, 0, 0], [1.2, 1.6, 0]), sensitivity=1, norm="l2").verdict == "refuted"


def test_integers_beyond_floats_are_compared_exactly() -> None:
    huge = 10**400

    def moves_by_one(dataset: int, rng: np.random.Generator) -> int:
        declare(huge + dataset, "total", sensitivity=1)
        return huge + dataset + int(rng.integers(5))

    def moves_far(dataset: int, rng: np.random.Generator) -> int:
        declare(huge * dataset, "total", sensitivity=1)
        return huge * dataset + int(rng.integers(5))

    few: Any = {"sensitivity": 1, "changes": 20, "tapes": 8}
    assert replay(moves_by_one, (0, 1), **few).exit_code == 0
    refuted = {f.kind: f for f in replay(moves_far, (0, 1), **few).findings if f.refutes}
    assert refuted.keys() == {"sensitivity-exceeded", "declared-sensitivity"}
    assert refuted["declared-sensitivity"].statement.startswith("total changes by 1e+400 (l1)")


def test_a_release_withheld_from_an_empty_dataset_is_a_warning() -> None:
    def withheld(count: int) -> int | None:
        released = count and count + DiscreteLaplace(scale=1).sample()
        return released if released >= 4 else None

    (found,) = (f for f in replay(withheld, (0, 1)).findings if f.kind == "no-noise")
    assert found.severity == "warning"
    assert (
        "dataset A draws nothing, so its output is certain; the other dataset gave this output on"
        in found.statement
    )


# Native code in an endless loop cannot be interrupted in-process, so a separate process runs it.
DEALS = """
import random, sys
import numpy as np
from audit.replay.rng_hooks import hooked_rngs
from audit.replay.replay_both import _NEAR
from audit.replay.tape import EXTREMES, Tape

steps = int(sys.argv[1])
calls = [("geometric", (p,)) for p in [1 - np.exp(-0.5), *np.linspace(0.3, 1, steps)]]
for mean in (0.5, 9.5, 50.0, 1e9):
    calls += [("poisson", (mean,)), ("gamma", (mean / 50,)), ("vonmises", (0, mean))]
    calls += [("negative_binomial", (mean, 0.1)), ("binomial", (int(mean) + 1, 0.4))]
    calls += [("beta", (mean / 50, 0.01)), ("logseries", (1 / (1 + mean),))]
    calls += [("zipf", (1 + min(mean, 99.0),))]
    calls += [("hypergeometric", (10, 1 + min(int(mean), 10**8), 5)), ("normal", ())]
plain = [("gammavariate", (0.1, 1)), ("vonmisesvariate", (0, 1)), ("sample", (range(99), 9))]
plain += [("betavariate", (0.1, 0.1)), ("gauss", (0, 1)), ("randrange", (10**30,))]
with hooked_rngs() as session:
    for source, owner, named in [
        ("rng", session.given, calls), ("numpy.random", lambda: np.random, calls),
        ("random", lambda: random, plain),
    ]:
        for name, arguments in named:
            for place in range(3):
                for value in (*EXTREMES, *_NEAR.values()):
                    tape = Tape(7, {(source, place): value})
                    session.play(tape, lambda: getattr(owner(), name)(*arguments))
"""


def test_every_distribution_of_numpy_and_python_ends_on_a_changed_tape() -> None:
    # numpy's geometric(1 - exp(-1/2)) did not terminate at 1 - 2^-53.
    words = [sys.executable, "-c", DEALS, str(effort(20, 2000))]
    subprocess.run(words, check=True, timeout=300, cwd=Path(__file__).parents[3])


def searches(value: int) -> int:
    u, total, found = random.random(), 0.0, value
    while total < u:  # endless at u = 1 - 2^-40: the sum ends at 1 - 2^-30
        found += 1
        total = 1 - max(2.0**-found, 2.0**-30)
    return found


def test_tapes_that_hang_on_both_datasets_are_skipped_and_reported() -> None:
    for target in (searches, faulty.hangs_rarely):
        report = replay(target, (0, 1), timeout=0.3, changes=20)
        (found,) = (each for each in report.findings if each.kind == "skipped-tapes")
        assert found.severity == "warning"
        assert "no answer within 0.3 s" in found.statement
        assert not any(each.kind == "hangs" for each in report.findings)
        assert report.changed < 20


def test_a_hang_on_one_dataset_is_a_fault_and_many_hangs_end_the_replay() -> None:
    def hangs(value: int) -> int:
        if random.random() < 2**-20 and value:
            while True:
                pass
        return random.getrandbits(4)

    findings = replay(hangs, (0, 1), timeout=0.3, changes=3).findings
    assert [each.severity for each in findings if each.kind == "hangs"] == ["error"]
    calls = []

    def seldom(value: int) -> int:
        calls.append(value)
        while value and len(calls) > 2:
            pass
        return random.getrandbits(4)

    with pytest.raises(TargetFailed, match="no answer within"):
        replay(seldom, (0, 1), timeout=0.05)
    assert calls.count(1) <= MOST_HANGS + 1
