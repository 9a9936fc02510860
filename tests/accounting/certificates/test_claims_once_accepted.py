r"""Regression tests of false claims that ``verify`` once accepted, and of its time limits."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from accounting import Status, deadline, verify
from accounting.certificates.certificate_format import part_of
from accounting.certificates.certify import certify
from accounting.composition.compose import compose
from accounting.errors import NotDerived
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.proof_kernel import worst_case_neighbours
from dpcore import PolyaDifference
from dpcore.parse_noise import read_noise
from tests.support.accounting.brute_force import mass_of
from tests.support.accounting.handwritten_certificates import certificate, enclosed, noise, stated
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

BOX = noise("binomial", [1, 1], trials="3", probability="11/25")
RIPPLED = noise("discrete-gaussian-sum", 1, count="64", sigma_squared="1/100")
ONE = noise("discrete-gaussian", 1, sigma_squared="1")
LAPLACE = noise("discrete-laplace", 1, 2, scale="1")
NEAR_TWO = str(2 - Fraction(1, 10**56))
NEAR_ONE = str(1 + Fraction(1, 10**55))

FALSE = {
    "delta, two directions": (BOX, enclosed("delta", "617/1000", "0.434587", "0.434588")),
    "epsilon, two directions": (BOX, enclosed("epsilon", "9/20", "0.568048", "0.568049")),
    "one minus a small number": (
        stated("approx", epsilon="1", delta=f"1/{10**57}"),
        enclosed("delta", "2", f"0.{955:060}", f"0.{956:060}"),
    ),
    "a delta of 0 in a wide unit": (ONE, enclosed("delta", "8", "0", "0")),
    "a second peak beyond the window": (RIPPLED, enclosed("renyi", "60", "45.84", "45.85")),
    "a difference within the rounding error": (
        LAPLACE,
        enclosed("delta", NEAR_TWO, f"0.{557:059}", f"0.{558:059}"),
    ),
    "a logarithm next to 0, divided": (
        stated("pure", epsilon="1"),
        enclosed("renyi", NEAR_ONE, "0.46178", "0.46179"),
    ),
}
TRUE = {
    "delta, four directions": (BOX, enclosed("delta", "617/1000", "0.458679", "0.458680")),
    "epsilon, four directions": (BOX, enclosed("epsilon", "9/20", "0.6597028", "0.6597029")),
    "a tiny hidden mass": (
        stated("approx", epsilon="1", delta=f"1/{10**57}"),
        enclosed("delta", "2", f"0.{1:057}", f"0.{1:057}"),
    ),
    "a rational Renyi divergence": (ONE, enclosed("renyi", "3", "1.5", "1.5")),
    "delta of coins": (
        noise("binomial", 1, trials="3", probability="1/2"),
        enclosed("delta", "0", "0.375", "0.375"),
    ),
    "datasets without a common output": (
        noise("binomial", 4, trials="3", probability="1/7"),
        enclosed("delta", "5", "1", "1"),
    ),
    "beyond the largest loss": (LAPLACE, enclosed("delta", "2", "0", "0")),
    "the largest loss": (LAPLACE, enclosed("epsilon", "0", "2.0", "2.0")),
    "a largest loss that is not rational": (
        noise("polya-difference", [1, 2], 3, shape="1/2", scale="3"),
        enclosed("epsilon", "0", "7.4162", "7.4163"),
    ),
}


def status(part: dict[str, Any], *claims: dict[str, Any]) -> list[Status]:
    return [each.status for each in verify(certificate([part], claims)).findings]


@pytest.mark.parametrize("name", [*FALSE, *TRUE])
def test_a_false_claim_does_not_hold_and_its_true_version_does(name: str) -> None:
    if name in FALSE:
        assert status(*FALSE[name])[0] in (Status.FAILS, Status.UNCHECKED)
    else:
        assert status(*TRUE[name]) == [Status.HOLDS]


def test_asymmetric_laws_need_every_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = noise("binomial", 1, 2, trials="3", probability="11/25")
    wide = noise("binomial", [1, 2, 3, 4, 5, 6, 7], trials="30", probability="11/25")
    for part in (twice, wide):
        assert status(part, enclosed("delta", "1/2", "0.4", "0.5")) == [Status.UNCHECKED]
    # A check of two directions only would accept a false claim.
    monkeypatch.setattr(worst_case_neighbours, "_directions", ALL_UP_OR_ALL_DOWN)
    assert status(*FALSE["delta, two directions"]) == [Status.HOLDS]


ALL_UP_OR_ALL_DOWN = mutated(
    worst_case_neighbours._directions,
    "itertools.product(*(range(count + 1) for _, count in shift))",
    "([0] * len(shift), [count for _, count in shift])",
)


def test_a_claim_at_an_irrational_point_fails() -> None:
    poisson = noise("poisson", 1, mean="3")
    (found,) = verify(certificate([poisson], [enclosed("delta", "0", "0.2", "0.2")])).findings
    assert found.status is Status.FAILS
    with mpmath.workdps(60):
        digits = mpmath.nstr(mpmath.exp(-3) * 27 / 6, 60)[:45]
    point = enclosed("delta", "0", digits, digits)
    assert status(poisson, point) == [Status.FAILS]


HUGE = str(10**1999)
TINIEST = f"1/{10**1990}"
SOME = ("0.4", "0.5")
ROUNDS = 10**7
MANY_TINY = noise("discrete-gaussian-sum", 1, count=str(10**20), sigma_squared=TINIEST)
HOSTILE: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([noise("discrete-laplace", 10**9, 2, scale="1")], enclosed("delta", "1", *SOME)),
    ([noise("discrete-laplace", 10**9, 2, scale="3")], enclosed("renyi", "2", *SOME)),
    ([noise("discrete-laplace", 10**9, scale=HUGE)], enclosed("delta", TINIEST, *SOME)),
    ([noise("discrete-gaussian", 1, sigma_squared="9")], enclosed("delta", HUGE, *SOME)),
    ([noise("skellam", 10**9, variance="9")], enclosed("renyi", "2", *SOME)),
    ([noise("skellam", 1, ROUNDS, variance=HUGE)], enclosed("delta", "1", *SOME)),
    ([noise("skellam", 1, ROUNDS, variance=TINIEST)], enclosed("epsilon", TINIEST, *SOME)),
    ([noise("binomial", 1, trials=HUGE, probability="1/3")], enclosed("delta", "0", *SOME)),
    ([noise("binomial", 1, trials="4096", probability=TINIEST)], enclosed("delta", "0", *SOME)),
    ([stated("approx", ROUNDS, epsilon=TINIEST, delta=TINIEST)], enclosed("delta", "9", *SOME)),
    ([noise("discrete-laplace", 3, scale=TINIEST)], enclosed("delta", HUGE, *SOME)),
    ([noise("discrete-laplace", 3, 50, scale=TINIEST)], enclosed("renyi", HUGE, *SOME)),
    ([noise("discrete-gaussian", 1, sigma_squared="9")], enclosed("renyi", HUGE, *SOME)),
    ([noise("discrete-gaussian", ("l1", 400), sigma_squared="9")], enclosed("delta", "9", *SOME)),
    ([noise("discrete-gaussian", ("l1", 10**9), sigma_squared="9")], enclosed("delta", "9", *SOME)),
    ([noise("discrete-gaussian", [10**9] * 64, sigma_squared="9")], enclosed("delta", "9", *SOME)),
    ([noise("poisson", [*range(1, 65)], mean="9")], enclosed("delta", "9", *SOME)),
    ([noise("polya", 1, shape=TINIEST, scale=HUGE)], enclosed("delta", "9", *SOME)),
    ([noise("polya-difference", 1, shape="1/2", scale=HUGE)], enclosed("epsilon", "0", *SOME)),
    ([MANY_TINY], enclosed("delta", "1", *SOME)),
]  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_every_admissible_text_is_verified_in_seconds(case: Any) -> None:
    start = time.process_time()
    found = verify(certificate(case[0], [case[1]]))
    assert not found.holds
    assert found.findings[-1].reason
    assert time.process_time() - start < 5


def test_the_steps_of_a_long_box_are_counted_at_once() -> None:
    steps = range(1, 1 << 14)
    part = part_of("part", noise("discrete-gaussian", [*steps, 1], sigma_squared="9"))
    start = time.process_time()
    ((*rounds,),) = worst_case_neighbours.scenarios((part,), above=True)
    assert [count for _, count in rounds] == [2, *[1] * (len(steps) - 1)]
    assert time.process_time() - start < 1


def test_sensitivities_of_correlated_noise_stop_at_the_deadline() -> None:
    # Each of the trees has 18,000 patterns of two rounds, which take a fifth of a second.
    trees = [
        {**noise("gaussian", 1, sigma=str(100 + i)), "correlated": run}
        for i in range(50)
        for run in [{"strategy": "tree", "rounds": 190 + i % 5, "most": 2, "apart": 1}]
    ]
    start = time.process_time()
    with deadline(0.5):
        found = verify(certificate(trees, [enclosed("delta", "1", *SOME)]))
    assert found.findings[-1].status is Status.UNDECIDED
    assert time.process_time() - start < 5


def test_a_claim_that_is_not_decided_in_time_is_not_certified() -> None:
    rounds = compose((PrivacyCurve(noise=read_noise("skellam:variance=1"), sensitivity=1), 10))
    with deadline(0.01), pytest.raises(NotDerived, match=r"not decided in 0\.01 seconds"):
        certify(rounds)


MASS = mass_of(PolyaDifference(shape="1/2", scale=3))


@pytest.mark.parametrize(
    ("text", "rounds", "truth"),
    [
        ("discrete-laplace:scale=20", 100, 5),
        ("polya-difference:shape=1/2,scale=3", 1, math.log(MASS(0) / MASS(1))),
        ("skellam:variance=9", 1, math.inf),
    ],
)
def test_the_largest_loss_is_certified_if_it_is_finite(
    text: str, rounds: int, truth: float
) -> None:
    curve: Any = PrivacyCurve(noise=read_noise(text), sensitivity=1)
    if truth == math.inf:
        assert "infinite" in refusal(lambda: certify(curve, deltas=["0"]), NotDerived)
        part = noise("skellam", 1, variance="9")
        assert status(part, enclosed("epsilon", "0", "40", "41")) == [Status.FAILS]
        return
    found = certify(compose((curve, rounds)) if rounds > 1 else curve, deltas=["0"])
    claim = found.claims[0]
    assert (claim["quantity"], claim["delta"]) == ("epsilon", "0")
    assert float(claim["lower"]) - 1e-12 <= truth <= float(claim["upper"]) + 1e-12
    assert claim["digits"] >= 7
    assert verify(found).holds
