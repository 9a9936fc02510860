"""Tests of `audit.testing.assertions`: true claims pass, false ones fail with their witness."""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import audit.testing.assertions
from audit.audit_spec import AuditSpec
from audit.claims import Claim
from audit.errors import TargetFailed
from audit.report.audit_record import ExactWitness
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.statistical_tests.event import Witness
from audit.testing import Refuted, assert_fits, assert_private, assert_sensitivity
from audit.testing.alpha_budget import AlphaBudget, BudgetExceeded, equal_share, format_up
from audit.testing.assertions import _refutation
from dpcore import DiscreteLaplace, Sensitivity
from dpcore.errors import InvalidParameter
from dpcore.numbers.rounding import down
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.mutants import mutated

DRAWN = itertools.count()
ALPHA = buy_alpha("audit.testing.assertions: assertions that must hold", "1e-8") / 20

Integers = NDArray[np.int64]


def geometric(scale: float, n: int, rng: np.random.Generator) -> Integers:
    rate = -np.expm1(-1 / scale)
    return rng.geometric(rate, n) - rng.geometric(rate, n)


def kept(value: int, n: int, rng: np.random.Generator) -> Integers:
    return value + geometric(1, n, rng)


def broken(value: int, n: int, rng: np.random.Generator) -> Integers:
    return value + geometric(0.5, n, rng)


def test_a_private_function_passes_with_its_reports() -> None:
    reports = assert_private(
        kept, "epsilon=1", pairs=[(0, 1), (5, 4)], runs=3000, alpha=ALPHA, seed=1
    )
    assert [report.verdict for report in reports] == ["not_refuted"] * 2
    assert [report.pair for report in reports] == [(0, 1), (5, 4)]
    assert [report.seed for report in reports] == [1, 2]
    assert sum(Fraction(report.alpha) for report in reports) == Fraction(repr(ALPHA))


def test_an_entry_of_the_catalogue_has_its_own_relation() -> None:
    pairs = [([1, 0], [1, 0, 1])]  # one more record
    with pytest.raises(Refuted):
        assert_private("exact-size", "epsilon=1", pairs=pairs, runs=1000, seed=1)
    with pytest.raises(InvalidParameter, match=r"^pairs .*must be neighbours under replace"):
        assert_private("exact-size", "epsilon=1", pairs=pairs, runs=1000, relation="replace")


def test_a_violation_fails_with_its_witness() -> None:
    pairs = [(3, np.int64(3)), (0, 1)]
    with pytest.raises(Refuted) as failure:
        assert_private(broken, "epsilon=1", pairs=pairs, runs=3000, seed=1)
    report = failure.value.report
    assert isinstance(report, AuditReport)
    assert report.witness is not None
    told = str(failure.value)
    assert told.startswith("broken violates epsilon=1 on the pair (0, 1): epsilon is at least")
    assert f"epsilon is at least {down(report.epsilon_lower)}\n" in told
    assert f"witness: {report.witness}" in told
    assert "alpha 1/2000000" in told  # each of two pairs has half of alpha
    again = "assert_private(..., pairs=[pair], runs=3000, alpha='1/2000000', seed=2)"
    assert f"again: {again}" in told

    with pytest.raises(Refuted) as repeated:  # the printed command repeats the failure
        assert_private(broken, "epsilon=1", pairs=[(0, 1)], runs=3000, alpha="1/2000000", seed=2)
    assert isinstance(repeated.value.report, AuditReport)
    assert repeated.value.report.witness == report.witness


def test_a_missing_seed_is_drawn_and_printed() -> None:
    seeds = set()
    for _ in range(2):
        with pytest.raises(Refuted, match=r"seed=\d+\)") as failure:
            assert_private(broken, "epsilon=1", pairs=[(0, 1)], runs=500, alpha="1e-3")
        assert isinstance(failure.value.report, AuditReport)
        seeds.add(failure.value.report.seed)
    assert len(seeds) == 2  # equal with probability 2^-32


def test_a_known_law_is_proven_or_refuted_without_runs() -> None:
    for target in (DiscreteLaplace(scale=1), "discrete-laplace:scale=1"):
        (report,) = assert_private(target, Claim(epsilon=1), pair=(0, 1))
        assert (report.verdict, report.runs) == ("proven", 0)
        with pytest.raises(Refuted, match="witness: output") as failure:
            assert_private(target, Claim(epsilon="0.999"), pairs=[(0, 1)])
        assert isinstance(failure.value.report, AuditReport)
        assert isinstance(failure.value.report.witness, ExactWitness)
        assert "p-value" not in str(failure.value)


def test_too_few_runs_to_refute_anything_are_refused() -> None:
    """With too few runs the assertion could never fail, not even on a broken mechanism."""
    for target in (kept, broken):
        with pytest.raises(InvalidParameter, match=r"runs = 40: are too few .* alpha = 1/1000000"):
            assert_private(target, "epsilon=1", pairs=[(0, 1)], runs=40, seed=1)
    spec = AuditSpec(target=broken, claim="epsilon=1", pair=(0, 1), runs=40, alpha="1e-6", seed=1)
    report, require = Audit(spec).run(), audit.testing.assertions._require_power
    with pytest.raises(InvalidParameter):
        require(report)
    mutated(require, "not math.isfinite(report.resolution)", "report.runs == 0")(report)


def raises(value: int) -> int:
    raise KeyError("age")


@pytest.mark.parametrize(
    ("target", "given", "told"),
    [
        (kept, {"pairs": (0, 1)}, "pairs = [0, 1]: must be a list of pairs, e.g. [(0, 1)]"),
        (kept, {"pair": [0, 1, 2]}, "pair = [0, 1, 2]: must be two datasets, e.g. (0, 1)"),
        (kept, {"pair": (0, 1), "pairs": [(0, 1)]}, "pairs: is given together with pair"),
        (kept, {}, "pair: must be given: two datasets, such as 0 and 1"),
        (raises, {"pair": (0, 1)}, "raises: raised KeyError: 'age' at test_assertions.py:"),
    ],
)
def test_a_wrong_pair_or_a_failing_target_is_not_a_refutation(
    target: Any, given: Any, told: str
) -> None:
    with pytest.raises((InvalidParameter, TargetFailed)) as refused:
        assert_private(target, "epsilon=1", **given)
    assert str(refused.value).startswith(told)


def test_an_alarm_of_the_test_runner_stays_active() -> None:
    """A SIGALRM time limit of the test runner, as pytest-timeout sets, stays active."""
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        assert_private(kept, "epsilon=1", pairs=[(0, 1)], runs=1000, alpha=ALPHA, seed=1)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_sampler_fits_its_law_and_no_other() -> None:
    noise = DiscreteLaplace(scale=1)

    def sampler(n: int, rng: np.random.Generator) -> Integers:
        return geometric(1, n, rng)

    report = assert_fits(sampler, noise, alpha=ALPHA, seed=1)
    assert report.verdict == "not_refuted"
    with pytest.raises(Refuted, match="witness: ") as failure:
        assert_fits(sampler, DiscreteLaplace(scale=2), alpha="1e-6", seed=1)
    assert "does not draw from discrete-laplace:scale=2" in str(failure.value)
    assert "again: assert_fits(..., runs=20000, alpha='1/1000000', seed=1)" in str(failure.value)
    with pytest.raises(TargetFailed):
        assert_fits(lambda n, rng: None, noise)


def test_a_query_within_its_sensitivity_passes() -> None:
    assert_sensitivity(sum, [([1, 2], [1, 4])], 2)
    assert_sensitivity(lambda rows: np.bincount(rows, minlength=3), [([0], [2])], Sensitivity.l1(2))
    assert_sensitivity(lambda x: (x, 2 * x), [(0, 1)], Sensitivity.l2_squared(5))
    assert_sensitivity(lambda x: [x, 2 * x], [(0, 1)], Sensitivity.box((1, 2)))
    assert_sensitivity(list.pop, [([1], [2])], 1)  # each call gets a fresh copy
    assert_sensitivity(lambda x: x * 10**40, [(0, 1)], 10**40)  # beyond the range of floats


@pytest.mark.parametrize(
    ("query", "pair", "bound", "told"),
    [
        (sum, ([1, 2], [1, 5]), 2, "sum changes by 3 on the pair"),
        (lambda x: x * 10**40, (0, 1), 10**40 - 1, f"changes by {10**40}"),
        (lambda x: (x, x), (0, 1), Sensitivity.l1(1), "changes by 2"),
        (lambda x: (x, 2 * x), (0, 1), Sensitivity.l2_squared(4), "changes by 5"),
        (lambda x: (2 * x, 0), (0, 1), Sensitivity.box((1, 2)), r"changes by \(2, 0\)"),
        (lambda x: x, ([1], [1, 2]), Sensitivity.l1(9), "changes the number of its answers"),
        (float, (0, 1), 1, "the answer of the query = 0.0"),
        (lambda x: np.array([0.5]), (0, 1), 1, "the answer of the query = array"),
        (lambda x: True, (0, 1), 1, "the answer of the query = True"),
        (lambda x: (x, x), (0, 1), 1, "write Sensitivity.l1"),
        (lambda x: (x, x), (0, 1), Sensitivity.box((1, 1, 1)), "for each of the 2 answers"),
        (lambda x: x, (0, 1), 0, "sensitivity = 0"),
        (lambda x: x + next(DRAWN), (0, 1), 1, "gives two different answers on one dataset"),
    ],
)
def test_a_query_beyond_its_sensitivity_or_without_one_fails(
    query: Any, pair: Any, bound: Any, told: str
) -> None:
    wanted = Refuted if "changes" in told else InvalidParameter
    for both in (pair, pair[::-1]) if wanted is Refuted else (pair,):
        with pytest.raises(wanted, match=told):
            assert_sensitivity(query, [both], bound)


def test_the_alpha_budget_refuses_to_exceed_its_total() -> None:
    own = AlphaBudget("1e-3")
    for i in range(500):
        assert own.buy(f"test {i}", equal_share("1e-3", 500)) == Fraction(1, 500_000)
    for name, alpha, told in (
        ("test 1", "1e-9", "already been used"),
        (" ", "1e-9", "the name of a test"),
        ("one more", 0, "between"),
        ("one more", 1, "between"),
        ("one more", "1e-100", r"needs alpha = 1e-100, but only 0 of 1e-3 is left"),
    ):
        with pytest.raises(BudgetExceeded, match=told):
            own.buy(name, alpha)
    assert own.left == 0
    assert own.spent == sum(own.bought.values()) == own.total
    assert own.statement() == "500 purchases spent 1e-3 of 1e-3"
    with pytest.raises(InvalidParameter, match="total"):
        AlphaBudget(0)
    with pytest.raises(InvalidParameter, match="tests"):
        equal_share("1e-3", 0)
    for share in map(Fraction, ("1/3", "1/7000", "2/3", "9999/10000", "1e-30", "0.123456")):
        assert share <= Fraction(format_up(share)) < share * 101 / 100  # printed rounded up


def test_a_failure_message_explains_its_bound_and_floating_point_leaks() -> None:
    def mean(dataset: list[int], n: int, rng: np.random.Generator) -> Any:
        return sum(dataset) / len(dataset) + rng.laplace(0, 1, n)

    pair = [3] * 50, [3] * 49 + [4]
    with pytest.raises(Refuted, match="  leak: the lowest bits of the output") as caught:
        assert_private(mean, "epsilon=1", pairs=[pair], seed=1, alpha="1e-3", runs=50_000)
    report = caught.value.report
    assert isinstance(report, AuditReport)
    assert "  bound: " not in str(caught.value)
    assert report.epsilon_lower > 1
    below = _refutation(replace(report, epsilon_lower=0.5), "again")
    assert "  bound: not above the refuted epsilon = 1: the bound is the" in below
    assert isinstance(report.witness, Witness)
    timed = replace(report, witness=replace(report.witness, feature="time"))
    for told in (_refutation(timed, "again"), str(timed), timed.to_html(), timed._repr_html_()):
        assert "the time of a call on this machine, not the output" in " ".join(told.split())
    assert "the time of a call" not in str(report)
