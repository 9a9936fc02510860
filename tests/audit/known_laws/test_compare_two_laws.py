"""Tests of proven divergences against independent mpmath sums, and of the verdicts from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest

from accounting.errors import NotDerived
from audit.claims import Claim
from audit.known_laws.compare_two_laws import epsilon_at, hockey_stick, renyi, worst_event
from audit.known_laws.exact_layer import prove
from audit.runs.draw_plan import Plan
from audit.targets.target import Law, NoiseAdded, Shifted
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting import brute_force
from tests.support.dpcore.mpmath_precision import real

NOISES: list[Noise] = [
    DiscreteLaplace(scale="3/2"),
    DiscreteLaplace(scale=4),
    DiscreteGaussian(sigma_squared="1/2"),
    DiscreteGaussian(sigma_squared=9),
]


close = partial(brute_force.close, room="1e-40")


@pytest.fixture(autouse=True)
def digits() -> Any:
    with mpmath.workdps(60):
        yield


def test_epsilon_of_shifted_noise_is_exact_in_simple_cases() -> None:
    laplace, gaussian = DiscreteLaplace(scale=4), DiscreteGaussian(sigma_squared=4)
    assert epsilon_at(Shifted(laplace, 0), Shifted(laplace, 3)) == Enclosure.exactly(Fraction(3, 4))
    assert epsilon_at(Shifted(gaussian, 0), Shifted(gaussian, 1)) == Enclosure.infinite()
    for noise in (laplace, gaussian):
        here = Shifted(noise, 5)
        assert epsilon_at(here, here) == hockey_stick(here, here, 0) == Enclosure.exactly(0)
        assert renyi(here, here, 2) == Enclosure.exactly(0)
        assert worst_event(here, here, 0) is None


# -- probability mass functions given by a user -----------------------------------------------

P: Law = {"a": "1/2", "b": "1/4", "c": "1/4"}
Q: Law = {"a": "1/4", "b": "1/2", "d": "1/4"}


def all_events(p: dict[str, Fraction], q: dict[str, Fraction]) -> list[tuple[Fraction, Fraction]]:
    outputs = sorted({*p, *q})
    return [
        (
            sum((p.get(x, Fraction()) for x in event), Fraction()),
            sum((q.get(x, Fraction()) for x in event), Fraction()),
        )
        for size in range(len(outputs) + 1)
        for event in itertools.combinations(outputs, size)
    ]


def fractions(pmf: Any) -> dict[str, Fraction]:
    return {x: Fraction(value) for x, value in pmf.items()}


@pytest.mark.parametrize("law", [(P, Q), (Q, P), (P, P)])
def test_divergences_of_pmfs_agree_with_the_worst_of_all_events(
    law: tuple[Law, Law],
) -> None:
    p, q = (fractions(one) for one in law)
    events = all_events(p, q)
    for epsilon in ("0", "0.3", "0.7", "2"):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        expected = max(real(a) - growth * real(b) for a, b in events)
        assert close(hockey_stick(*law, epsilon), expected)
    for delta in ("0", "1/8", "1/4", "3/10", "1/2"):
        needed = [
            (a - Fraction(delta)) / b if b else Fraction(10**9)
            for a, b in events
            if a > Fraction(delta)
        ]
        found = epsilon_at(*law, delta)
        if max(needed) == 10**9:
            assert found == Enclosure.infinite()
        else:
            assert close(found, max(mpmath.log(mpmath.mpf(max(needed).numerator)
                                               / max(needed).denominator), 0))  # fmt: skip


def test_renyi_divergences_of_pmfs_are_exact() -> None:
    p: Law = {0: "1/3", 1: "2/3"}
    q: Law = {0: "1/2", 1: "1/2"}
    expected = mpmath.log(mpmath.mpf(2) / 9 + mpmath.mpf(8) / 9)  # sum p^2/q
    assert close(renyi(p, q, 2), expected)
    assert renyi(P, Q, 2) == Enclosure.infinite()
    assert renyi(P, P, 2) == Enclosure.exactly(0)


def test_a_table_of_masses_agrees_with_the_noise_itself() -> None:
    # A noise restricted to 81 values, with one more outcome for the remaining mass.
    noise = DiscreteLaplace(scale=1)

    def cut(shift: int) -> dict[Hashable, Fraction]:
        kept: dict[Hashable, Fraction] = {
            x: Fraction(noise.enclose_pmf(x - shift).lower) for x in range(-40, 41)
        }
        return {**kept, "rest": 1 - sum(kept.values(), Fraction())}

    tabled = hockey_stick(cut(0), cut(1), "1/2")
    proven = hockey_stick(Shifted(noise, 0), Shifted(noise, 1), "1/2")
    assert abs(tabled.lower_float - proven.lower_float) < 1e-15


@pytest.mark.parametrize(
    ("p", "q", "complaint"),
    [
        ({"a": "1/2"}, P, "p = 1/2: is the sum of its masses"),
        (P, {"a": "3/2", "b": "-1/2"}, r"q\['b'\] = .*must be >= 0"),
        (P, {"a": "x"}, r"q\['a'\] = x"),
        (P, Shifted(NOISES[0], 0), "must be two pmfs or two shifts of one noise"),
        (Shifted(NOISES[0], 0), Shifted(NOISES[1], 0), "must be a shift of the same noise"),
    ],
)
def test_laws_that_cannot_be_compared_are_refused(p: Law, q: Law, complaint: str) -> None:
    with pytest.raises(InvalidParameter, match=complaint):
        hockey_stick(p, q, 1)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="epsilon = -1: must be >= 0"):
        hockey_stick(P, Q, -1)
    with pytest.raises(InvalidParameter, match=r"delta = 1: must lie in \[0, 1\)"):
        epsilon_at(P, Q, 1)
    with pytest.raises(InvalidParameter, match="order = 1: must be > 1"):
        renyi(P, Q, 1)
    with pytest.raises(InvalidParameter, match=r"shift = 0\.5: must be an integer"):
        Shifted(NOISES[0], 0.5)  # type: ignore[arg-type]  # what the type forbids


# -- events and verdicts ----------------------------------------------------------------------


def decided(spelling: str, claim: str, pair: tuple[int, int]) -> Any:
    target = read_target(spelling)
    assert isinstance(target, NoiseAdded)
    return prove(target, Plan(claim=Claim.read(claim), pair=pair))


def test_a_claim_on_the_boundary_is_proven_and_a_smaller_one_refuted() -> None:
    assert decided("discrete-laplace:scale=3", "epsilon=2/3", (0, -2)).verdict == "proven"
    report = decided("discrete-laplace:scale=3", "epsilon=0.66666666666666", (0, -2))
    assert report.verdict == "refuted"
    assert report.epsilon_lower <= Fraction(2, 3) < math.nextafter(report.epsilon_lower, 1)
    assert decided("discrete-gaussian:sigma_squared=4", "epsilon=99", (0, 1)).verdict == "refuted"
    equal = decided("discrete-gaussian:sigma_squared=4", "epsilon=0", (3, 3))
    assert (equal.verdict, equal.exact.delta) == ("proven", Enclosure.exactly(0))


def test_noise_without_a_theorem_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = DiscreteLaplace(scale=1)
    monkeypatch.setattr(
        "audit.known_laws.shift_curve.pair_of",
        lambda *_: (_ for _ in ()).throw(NotDerived("the worst shift", "add it")),
    )
    with pytest.raises(NotDerived, match="cannot derive"):
        hockey_stick(Shifted(noise, 0), Shifted(noise, 1), 1)
