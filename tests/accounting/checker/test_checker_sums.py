"""Sums of discrete Gaussians of small variance along the second path, and what verify may cost."""

from __future__ import annotations

import itertools
import json
import time
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from accounting.certificates.certificate import certify
from accounting.checker import Status, alone, estimate, verify
from accounting.checker.alone import deltas_of_one
from accounting.checker.laws import masses as laws
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.masses import REAL, masses
from accounting.checker.text.form import SCHEMA, THEOREMS, digest_of, required_assumptions
from accounting.checker.verdict import Allowance
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from accounting.totals.compose import compose
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

SMALL = (
    (300, Fraction(1, 2000)),
    (1000, Fraction(1, 20)),
    (64, Fraction(1, 1000)),
    (32, Fraction(1, 3000)),
    (64, Fraction(1, 10)),
    (5, Fraction(1, 50)),
)
_BITS = 4200


def sum_of(count: int, variance: Fraction) -> Law:
    return Law("discrete-gaussian-sum", (Fraction(count), variance))


def convolved(count: int, variance: Fraction, most: int) -> list[int]:
    """The masses at 0, ..., most by multiplying out, in units of 2^-4200, all terms positive."""
    end = 2 * most + 8
    with mpmath.workprec(_BITS + 64):
        rate = -mpmath.mpf(variance.denominator) / (2 * variance.numerator)
        weights = [mpmath.exp(rate * k * k) for k in range(end + 1)]
        total = weights[0] + 2 * mpmath.fsum(weights[1:])
        half = [int(mpmath.floor(w / total * (1 << _BITS))) for w in weights]

    def times(a: list[int], b: list[int]) -> list[int]:
        # A symmetric law by its masses at 0, ..., end.
        whole = [b[abs(k)] for k in range(-2 * end, 2 * end + 1) if abs(k) <= end]
        found = []
        for m in range(end + 1):
            pairs = ((x, m - x) for x in range(max(m - end, -end), end + 1))
            found.append(sum(a[abs(x)] * whole[y + end] for x, y in pairs) >> _BITS)
        return found

    power, result = half, [1 << _BITS] + [0] * end
    while count:
        if count & 1:
            result = times(result, power)
        power, count = times(power, power), count >> 1
    return result[: most + 1]


def farthest(count: int, variance: Fraction) -> int:
    """The last place of which the path has an opinion, 24 at most."""
    for most in range(1, 25):
        if laws._surprise_of_sum(count, float(variance), most) > laws._FARTHEST:
            return most - 1
    return 24


@by_day(2)
@pytest.mark.parametrize(("count", "variance"), SMALL)
def test_masses_are_those_of_the_convolution_to_the_far_end(count: int, variance: Fraction) -> None:
    most = farthest(count, variance)
    assert most >= 1
    found = masses(sum_of(count, variance), 0, most)
    with mpmath.workprec(600):
        for m, (mass, truth) in enumerate(
            zip(found, convolved(count, variance, most), strict=True)
        ):
            exact = mpmath.mpf(truth) / (mpmath.mpf(2) ** _BITS)
            assert abs(mpmath.mpf(mass._mpf_) / exact - 1) < mpmath.mpf(10) ** -30, m


@by_day(2)
@pytest.mark.parametrize(("count", "variance"), SMALL)
def test_the_bound_of_the_least_mass_is_one(count: int, variance: Fraction) -> None:
    most = farthest(count, variance)
    for m, truth in enumerate(convolved(count, variance, most)):
        with mpmath.workprec(200):
            surprise = -mpmath.log(mpmath.mpf(truth) / mpmath.mpf(2) ** _BITS)
        assert surprise <= laws._surprise_of_sum(count, float(variance), m), m


def test_too_few_bits_are_noticed() -> None:
    ripple = "(most * most + rest * (n - rest)) / (2 * n * v)"
    fewer = mutated(laws._surprise_of_sum, ripple, "most * most / (2 * n * v)")
    plan = mutated(laws._plan, "bits, size", "bits, size", _surprise_of_sum=fewer)
    broken = mutated(laws._gaussian_sum, "bits, size", "bits, size", _plan=plan)
    with pytest.raises(Unchecked, match="below the digits kept"):
        broken(8, Fraction(300), Fraction(1, 2000))


@by_day(5)
@pytest.mark.parametrize(("count", "variance"), [*SMALL, (1000, Fraction(1, 12))])
@pytest.mark.parametrize("step", [1, 4])
def test_delta_is_a_probability_that_falls(count: int, variance: Fraction, step: int) -> None:
    epsilons = [Fraction(i, 7) for i in range(400)]
    try:
        found = deltas_of_one(sum_of(count, variance), step, epsilons, 50.0)
    except Unchecked:
        return
    for each in found:
        assert -each.error <= each.value <= 1 + each.error
    for one, other in itertools.pairwise(found):
        assert other.value - other.error <= one.value + one.error


def test_a_delta_that_is_none_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [REAL.mpf(1) / (2 + i % 2) for i in range(399)] + [REAL.mpf(5)]
    monkeypatch.setattr(alone, "masses", lambda *_: noise)
    alone._listing.cache_clear()
    with pytest.raises(Unchecked, match="its delta would be"):
        deltas_of_one(Law("skellam", (Fraction(4),)), 1, [Fraction(0)], 50.0)
    alone._listing.cache_clear()


# -- claims that are false -----------------------------------------------------------------------


def claiming(noise: dict[str, str], step: int, claims: list[dict[str, Any]]) -> str:
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "scope": {"unit": "contribution", "relation": "replace"},
        "parts": [
            {
                "noise": noise,
                "sensitivity": {"norm": "absolute", "amount": step},
                "honest": "1",
                "rounds": 1,
            }
        ],
        "claims": claims,
        "software": {"name": "dpcore", "version": "0.1.0"},
    }
    document["assumptions"] = [*required_assumptions(document)]
    return json.dumps({**document, "digest": digest_of(document)})


def epsilon(lower: str, upper: str, digits: int) -> dict[str, Any]:
    found = {"quantity": "epsilon", "delta": "1/1000000", "lower": lower, "upper": upper}
    return {**found, "digits": digits, "theorem": THEOREMS["epsilon"]}


@pytest.mark.parametrize(
    ("count", "variance", "step", "ends"),
    [
        ("300", "1/2000", 1, ("1.04", "1.05", 2)),
        ("64", "1/1000", 1, ("1.04", "1.05", 2)),
        ("1000", "1/20", 37, ("7.170", "7.171", 3)),
        ("1000", "1/20", 1, ("0.000", "0.001", 3)),
    ],
)
def test_a_bound_from_the_noise_of_the_digits_does_not_hold(
    count: str, variance: str, step: int, ends: tuple[str, str, int]
) -> None:
    noise = {"law": "discrete-gaussian-sum", "count": count, "sigma_squared": variance}
    text = claiming(noise, step, [epsilon(*ends)])
    assert not verify(text).holds


def test_true_certificates_of_small_variances_hold() -> None:
    for count, variance in ((1000, Fraction(1, 20)), (1000, Fraction(1, 10)), (63, Fraction(1, 2))):
        curve = PrivacyCurve(
            noise=DiscreteGaussianSum(count=count, sigma_squared=variance), sensitivity=1
        )
        assert verify(certify(curve, deltas=["1e-6"]).text()).holds


def test_what_is_out_of_reach_is_said_in_words() -> None:
    noise = DiscreteGaussianSum(count=64, sigma_squared="1/1000")
    curve = PrivacyCurve(noise=noise, sensitivity=1)
    with pytest.raises(NotDerived, match="too far out"):
        certify(curve, deltas=["1e-6"], digits=4)
    # The values of two rounds of four digits are nearer.
    assert verify(certify(compose((curve, 2)), deltas=["1e-6"], digits=4).text()).holds


# -- what a text may cost ------------------------------------------------------------------------


@pytest.mark.nightly
def test_many_claims_of_one_wide_law_share_its_listing() -> None:
    noise = {"law": "skellam", "variance": "100000000"}
    claims = [
        {"quantity": "delta", "epsilon": f"1/{1000 + i}", "lower": "0.00000", "upper": "0.00001",
         "digits": 5, "theorem": THEOREMS["delta"]}
        for i in range(64)
    ]  # fmt: skip
    start = time.process_time()
    verify(claiming(noise, 1, claims))
    assert time.process_time() - start < 15


def test_claims_that_would_list_for_ever_are_unchecked() -> None:
    claims = [
        {"quantity": "renyi", "order": str(2 + i), "lower": "0.00000", "upper": "0.00001",
         "digits": 5, "theorem": THEOREMS["renyi"]}
        for i in range(3)
    ]  # fmt: skip
    text = claiming({"law": "skellam", "variance": "1000"}, 1, claims)
    assert Status.UNCHECKED not in {each.status for each in verify(text).findings}
    found = verify(text, Allowance(1200)).findings
    assert [each.status is Status.UNCHECKED for each in found] == [False, True, True]
    assert found[2].reason == "the claims need more than 1200 values in all"


def test_the_listing_of_one_law_is_spent_once() -> None:
    allowance = Allowance(3000)
    curve = PrivacyCurve(noise=DiscreteGaussianSum(count=3, sigma_squared=40), sensitivity=2)
    text = certify(curve, deltas=["1e-6", "1e-5"], epsilons=["1/10"]).text()
    estimate.checked.cache_clear()
    assert verify(text, allowance).holds
    spent = sum(allowance.listed.values())
    assert verify(text, allowance).holds
    assert sum(allowance.listed.values()) == spent > 0
