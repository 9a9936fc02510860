# ruff: noqa: NPY002 - the legacy interface of numpy is one of those under test
"""Tests of replay findings: each is reported for a faulty mechanism, not for its twin."""

from __future__ import annotations

import itertools
import json
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
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
from dpcore.sampling.rng import SYSTEM, SeededRng
from tests.day_and_nightly import by_day, effort

AMOUNTS = (0.25, 0.75)


def replay(*given: Any, changes: int = effort(30, 60), **options: Any) -> ReplayReport:
    return audit.replay.replay_both.replay(*given, changes=changes, **options)


def kinds(report: ReplayReport, severity: str = "error") -> set[str]:
    return {found.kind for found in report.findings if found.severity == severity}


def only(report: ReplayReport, kind: str) -> Finding:
    (found,) = (found for found in report.findings if found.kind == kind)
    return found


# -- correct mechanisms ------------------------------------------------------------------------

# Mechanisms with one fault each, and mechanisms that stay correct for every value of their draws.

NOISE = DiscreteLaplace(scale=1)
THRESHOLD = DiscreteLaplace(scale=2)
ANSWER = DiscreteLaplace(scale=4)
COUNTER = itertools.count()
MADE_EARLY = np.random.default_rng(20)
SEEDED_EARLY = SeededRng(20)


def counter(value: int) -> int:
    """Noise that production code draws ahead in a buffer."""
    return value + NOISE.sample()


def numpy_counter(value: int, rng: np.random.Generator) -> int:
    return value + int(rng.geometric(0.632)) - int(rng.geometric(0.632))


def sparse_vector(answers: list[int]) -> list[int]:
    """Stops at the first answer above: draws and length depend on the data, correctly."""
    threshold = THRESHOLD.sample()
    found = []
    for answer in answers:
        found.append(int(answer + ANSWER.sample() >= threshold))
        if found[-1]:
            break
    return found


def noisy_max(counts: list[int]) -> int:
    return int(np.argmax([count + THRESHOLD.sample() for count in counts]))


def largest_of_histogram(counts: list[int]) -> int:
    """A function of a noisy histogram: one extreme draw decides the output."""
    return max(count + NOISE.sample() for count in counts)


def randomised_response(bit: int, rng: np.random.Generator) -> int:
    """Truth with probability 1/2, else a fair coin: a correct branch without noise."""
    return bit if rng.random() < 0.5 else int(rng.random() < 0.5)


def of_many(value: int, rng: np.random.Generator) -> str:
    """Randomised response among 200 words, at epsilon = 3."""
    kept = rng.random() < 19.0855 / (19.0855 + 199)
    other = int(rng.integers(199))
    return f"word {value if kept else other + (other >= value)}"


def size_and_noise(records: list[int]) -> list[int]:
    """Add-remove neighbours: a noisy size, after one draw per record."""
    kept = [x for x in records if SYSTEM.flip() or x]
    return [len(kept) + NOISE.sample()]


def float_sum(values: list[float], rng: np.random.Generator) -> float:
    return sum(values) + rng.laplace(0, 1)


def leaks_by_numpy(amount: float, rng: np.random.Generator) -> float:
    """The raw amount with probability 1e-5, after a branch on a draw."""
    return amount if rng.random() > 1 - 1e-5 else int(amount + 0.5) + NOISE.sample()


def leaks_after_two(amount: float, rng: np.random.Generator) -> float:
    """Makes the second draw only if the first one is rare."""
    if rng.random() < 1e-5 and rng.random() > 1 - 1e-5:
        return amount
    return int(amount + 0.5) + NOISE.sample()


def leaks_by_secrets(amount: float) -> float:
    return amount if secrets.randbelow(100_000) == 0 else int(amount + 0.5) + NOISE.sample()


def leaks_not(amount: float, rng: np.random.Generator) -> float:
    """The correct twin: the rare branch also returns a noisy value."""
    rare = rng.random() < 1e-5
    return int(amount + 0.5) + NOISE.sample() + (NOISE.sample() if rare else 0)


def one_noise(counts: list[int]) -> list[int]:
    noise = NOISE.sample()
    return [count + noise for count in counts]


def row_a_record(records: list[int]) -> list[int]:
    return [record + NOISE.sample() for record in records]


def fixed_global(value: int) -> float:
    np.random.seed(20)
    random.seed(20)
    return value + np.random.laplace() + random.gauss(0, 1)


def shared(counts: list[int]) -> list[int]:
    seed = SYSTEM.bits(64)
    return [count + NOISE.sample(rng=SeededRng(seed)) for count in counts]


def other_thread(value: int) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(SYSTEM.bits(32)))
    thread.start()
    thread.join()
    return value + found[0]


def raises_rarely(value: int, rng: np.random.Generator, only_in_b: bool = False) -> int:
    if rng.random() < 1e-5 and (value or not only_in_b):
        raise ValueError("no logarithm of 0")
    return value + NOISE.sample()


def hangs_rarely(value: int, rng: np.random.Generator) -> int:
    while rng.random() < 1e-5:
        while True:
            pass
    return value + NOISE.sample()


def raises(value: int) -> Any:
    raise ValueError(f"never {value}")


CORRECT: list[tuple[Callable[..., Any], tuple[Any, Any], dict[str, Any]]] = [
    (counter, (0, 1), {"sensitivity": 1, "strict": True}),
    # Coins of one bit each: some changes of them set the noise to 0.
    (lambda x: x + NOISE.sample_reference(SYSTEM), (0, 1), {"sensitivity": 1, "strict": True}),
    # Epsilon = 3: the noise is almost always 0, which is correct.
    (lambda x: x + DiscreteLaplace(scale="1/3").sample_reference(SYSTEM), (0, 1),
     {"sensitivity": 1, "strict": True}),
    (numpy_counter, (0, 1), {"sensitivity": 1, "strict": True}),
    (lambda x, n, rng: x + rng.geometric(0.632, n) - rng.geometric(0.632, n), (0, 1),
     {"sensitivity": 1, "strict": True}),
    (sparse_vector, ([0, 0, 1], [1, 1, 0]), {}),
    (noisy_max, ([0, 1, 1], [1, 0, 0]), {}),
    (largest_of_histogram, ([5, 1, 5], [5, 2, 5]), {"sensitivity": 1}),
    (largest_of_histogram, ([1, 0, 0], [2, 0, 0]), {"sensitivity": 1}),
    (randomised_response, (0, 1), {}),
    (of_many, (3, 150), {}),
    (lambda x: min(max(x + NOISE.sample(), -4), 4), (0, 1), {"sensitivity": 1}),
    (size_and_noise, ([1, 0, 1], [1, 0, 1, 1]), {"sensitivity": 1}),
    (lambda values: sum(min(x, 1) for x in values) + NOISE.sample(), ([1, 0], [1, 9]),
     {"sensitivity": 1}),
    (leaks_not, AMOUNTS, {"sensitivity": 1}),
    (float_sum, ([0.1, 0.2], [0.1, 1.2]), {"sensitivity": 1, "strict": True}),
]  # fmt: skip


@by_day(4)
@pytest.mark.parametrize(("function", "pair", "declared"), CORRECT, ids=range(len(CORRECT)))
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


LEAKS = [leaks_by_numpy, leaks_by_secrets, leaks_after_two]


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
    assert kinds(replay(leaks_by_numpy, AMOUNTS)) == set()
    monkeypatch.undo()
    assert kinds(replay(leaks_by_numpy, AMOUNTS, changes=0)) == set()


# -- sensitivity, draws, shape -----------------------------------------------------------------


def test_sensitivity_is_measured_in_the_declared_norm() -> None:
    pair = ([0, 0], [3, 4])
    for norm, exceeded in (("l1", True), ("l2", False), ("linf", False)):
        found = kinds(replay(one_noise, pair, sensitivity=5, norm=norm, changes=5))
        assert ("sensitivity-exceeded" in found) is exceeded
    below = replay(one_noise, pair, sensitivity="4.99", norm="l2", changes=5)
    assert only(below, "sensitivity-exceeded").witness["difference"] == "sqrt(25)"


def test_rounding_of_floats_does_not_exceed_the_sensitivity() -> None:
    assert replay(float_sum, ([0.1] * 9, [0.1] * 8 + [1.1]), sensitivity=1).exit_code == 0
    assert replay(float_sum, ([0.1], [1.10001]), sensitivity=1).verdict == "refuted"


def test_what_a_review_must_explain_is_a_warning() -> None:
    cases: list[tuple[Callable[..., Any], Any, dict[str, Any], str, bool]] = [
        (lambda x: x + NOISE.sample() * (1 + x), (0, 1), {"sensitivity": 200}, "not-additive",
         True),
        (counter, (0, 1), {"sensitivity": 1}, "not-additive", False),
        # The runs make different draws, so their outputs are not compared.
        (size_and_noise, ([1], [1, 1]), {"sensitivity": 1}, "sensitivity-not-compared", True),
        (randomised_response, (0, 1), {}, "unnoised-branch", True),
        (lambda x: x + int(np.random.default_rng(20).integers(9)) + NOISE.sample(), (0, 1), {},
         "fixed-seed", True),
    ]  # fmt: skip
    for function, pair, declared, kind, found in cases:
        report = replay(function, pair, **declared)
        assert (kind in kinds(report, "warning")) is found, kind
        assert report.verdict == "nothing_found"


def test_strict_declares_that_draws_do_not_depend_on_data() -> None:
    report = replay(sparse_vector, ([-50, 50], [50, -50]), strict=True)
    assert only(report, "draws").refutes
    assert report.verdict == "refuted"
    assert "draws" not in kinds(replay(noisy_max, ([0, 1], [1, 0]), strict=True))


def test_a_shape_that_depends_on_the_data_is_found() -> None:
    pair = ([1, 0], [1, 0, 0])
    found = only(replay(row_a_record, pair), "structure")
    assert (found.severity, found.refutes) == ("error", False)
    assert only(replay(row_a_record, pair, strict=True), "structure").refutes
    assert only(replay(sparse_vector, ([0, 0], [1, 1])), "structure").severity == "note"
    report = replay(one_noise, ([1, 0], [1, 1]))
    assert "structure" not in kinds(report)
    assert only(report, "unnoised-part").statement.startswith("output[0] minus output[1]")


# -- sources of randomness ---------------------------------------------------------------------


def test_a_release_without_noise_is_an_error_but_refutes_no_claim() -> None:
    def raw(value: int) -> int:
        return value

    report = replay(raw, (0, 1))
    assert (report.verdict, report.exit_code) == ("found", 1)
    assert not only(report, "no-noise").refutes
    assert kinds(replay(lambda value: 0 * value, (0, 1)), "warning") == {"constant"}
    half = only(replay(lambda value: value or NOISE.sample(), (0, 1)), "no-noise")
    assert (half.severity, half.refutes) == ("error", False)


def test_a_fixed_seed_is_found() -> None:
    functions: list[Callable[..., Any]] = [
        lambda value: value + NOISE.sample(rng=SeededRng(20)),
        lambda value: value + np.random.default_rng(20).laplace(),
        lambda value: value + float(np.random.Generator(np.random.PCG64(20)).laplace()),
        fixed_global,
    ]
    for function in functions:
        report = replay(function, (0, 1))
        assert report.verdict == "found"
        assert kinds(report) >= {"no-noise", "fixed-seed"}
        assert "20" in only(report, "fixed-seed").statement


def test_an_unsafe_source_of_randomness_gives_a_warning() -> None:
    cases: list[tuple[Callable[..., Any], Any, str]] = [
        (lambda x: x + MADE_EARLY.laplace(), (0, 1), "made-early"),
        (lambda x: x + NOISE.sample(rng=SEEDED_EARLY), (0, 1), "made-early"),
        (shared, ([0, 1], [1, 1]), "shared-seed"),
        (lambda x: x + np.random.default_rng(time.perf_counter_ns()).laplace(), (0, 1),
         "outside-seed"),
        (lambda x: x + random.gauss(0, 1), (0, 1), "not-cryptographic"),
        (lambda x: x + float(np.random.default_rng().laplace()), (0, 1), "not-cryptographic"),
    ]  # fmt: skip
    states = MADE_EARLY, SEEDED_EARLY._stream
    for function, pair, kind in cases:
        report = replay(function, pair, changes=20)
        assert kind in kinds(report, "warning")
        assert report.replayable
    # What a module made early is as before, and safe sources give no warning.
    assert states == (MADE_EARLY, SEEDED_EARLY._stream)
    assert kinds(replay(numpy_counter, (0, 1)), "warning") == set()


# -- targets that cannot be replayed, and failures ---------------------------------------------


def test_a_target_with_its_own_entropy_is_reported() -> None:
    for function in (lambda value: value + NOISE.sample() + next(COUNTER), other_thread):
        report = replay(function, (0, 1))
        assert report.verdict == "not_replayable"
        assert report.exit_code == 3
        assert "own-entropy" in kinds(report, "warning")


def test_a_failure_on_a_changed_tape_is_a_finding_and_on_an_unchanged_one_of_the_target() -> None:
    report = replay(raises_rarely, (0, 1))
    assert "no logarithm of 0" in only(report, "raises").statement
    assert report.verdict == "nothing_found"
    assert "raises" in kinds(replay(partial(raises_rarely, only_in_b=True), (0, 1)))
    with pytest.raises(
        TargetFailed, match=r"raised ValueError: never 0 at test_replay_both.py:\d+"
    ):
        replay(raises, (0, 1))


# -- the report and the command ----------------------------------------------------------------


def test_the_same_seed_repeats_the_report() -> None:
    texts = [replay(leaks_by_numpy, AMOUNTS, seed=3).to_text() for _ in range(2)]
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
            replay(counter, (0, 1), **options)
    for pair in ((1, 1), ([1], [1, 2, 3])):  # as in audit: equal datasets, and no neighbours
        with pytest.raises(InvalidParameter, match=r"two different datasets|plus one record"):
            replay(counter, pair)
    with pytest.raises(ValueError, match="refutes"):
        Finding(kind="x", severity="note", statement="x", refutes=True)
    # The report states a deadline.
    report = replay(counter, (0, 1), deadline=1e-9)
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
    for target in (searches, hangs_rarely):
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
