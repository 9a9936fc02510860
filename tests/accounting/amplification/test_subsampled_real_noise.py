"""Tests of subsampled real noise: quadrature of one round, extremes, groups, replaced units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy import stats

from accounting import NotDerived, compose
from accounting.certificates.certify import certify
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import batch, by_fft

Terms: TypeAlias = Mapping[float, float]  # of each shift, its weight
X = np.arange(-60.0, 60.0, 1e-3) + 5e-4


def density(curve: Any, terms: Terms) -> Any:
    """Return the mixture of the noise around shifts, each with its weight, in cells of 1e-3."""
    law, size = (stats.norm, "sigma") if hasattr(curve.noise, "sigma") else (stats.laplace, "scale")
    scale = float(Fraction(getattr(curve.noise, size)))
    return sum(w * bell(law, at, scale) for at, w in terms.items() if w)


@cache
def bell(law: Any, at: float, scale: float) -> Any:
    return 1e-3 * law.pdf(X, at, scale)


def gain(p: Any, q: Any, epsilon: str) -> float:
    """Return the hockey-stick divergence of two densities."""
    return float(np.maximum(p - math.exp(Fraction(epsilon)) * q, 0).sum())


def members(count: int, rate: str) -> Terms:
    return dict(enumerate(stats.binom.pmf(range(count + 1), count, float(Fraction(rate)))))


def weighted(*weights: str) -> Terms:
    return {at: float(Fraction(each)) for at, each in enumerate(weights)}


def moved(shift: int, rate: str) -> Terms:
    return {0: 1 - float(Fraction(rate)), shift: float(Fraction(rate))}


PHI = 2e-14 / math.sqrt(math.tau)
NORMAL, LAPLACE = releases.gaussian, releases.laplace
NOBODY: Terms = {0: 1.0}
# Scheme with its curve, arguments, weights of the shifts on both datasets, epsilon.
ROUNDS: list[tuple[Any, Any, dict[str, Any], Terms, Terms, str]] = [
    *(
        (releases.poisson, NORMAL(s), {"rate": q, "members": k}, members(k, q), NOBODY, epsilon)
        for s, q, k, epsilon in (
            ("1", "1/100", 1, "1/10"), ("1/2", "1/5", 1, "1"), ("1", "1/10", 2, "3/10"),
            ("2", "1/4", 5, "1/2"), ("1", "1/2", 3, "1"), ("4", "1/20", 8, "0.1"),
        )
    ),
    *(
        (releases.shifted, NORMAL("3/2"), {"weights": w}, weighted(*w), NOBODY, epsilon)
        for w, epsilon in ((("0", "1/4", "3/4"), "1"), (("1/2", "0", "3/8", "1/8"), "1/4"))
    ),
    *(
        (releases.replaced, curve, {"rate": q}, moved(1, q), moved(-1, q), epsilon)
        for curve, q, epsilon in (
            (NORMAL("1"), "1/100", "1/100"), (NORMAL("1/2"), "1/5", "1/2"),
            (NORMAL("4"), "1/3", "1/20"), (LAPLACE("2"), "1/10", "1/20"),
            (LAPLACE("1"), "1/2", "1/2"),
        )
    ),
]  # fmt: skip


@by_day(5)
@pytest.mark.parametrize(("scheme", "curve", "given", "here", "there", "epsilon"), ROUNDS)
def test_one_round_is_the_worse_of_two_directions(
    scheme: Any, curve: Any, given: dict[str, Any], here: Terms, there: Terms, epsilon: str
) -> None:
    source, e = scheme(curve=curve, **given), float(Fraction(epsilon))
    p, q = density(curve, here), density(curve, there)
    both = [gain(p, q, epsilon), gain(q, p, epsilon)]
    found = ends(source.delta(epsilon, "1e-12"))
    assert (found.lower_float, found.upper_float) == pytest.approx((max(both),) * 2, rel=1e-6)
    assert source.epsilon(Fraction(found.upper), "1e-10").upper_float == pytest.approx(e, rel=1e-9)
    for ((_, pair),), truth in zip(source.directions, both, strict=False):
        assert releases.of_pair(pair, epsilon) == pytest.approx(truth, rel=1e-6, abs=1e-14)
    # The mutant: the pair with and without one unit costs less than a group or a replaced unit.
    if "rate" in given and given.get("members") != 1:
        assert releases.poisson(curve, given["rate"]).delta(epsilon).upper < max(both) * 0.99


# Sigma, scheme and rate, rounds, quantity and its point; both bounds lie between least and most, on
# either side of the reference. Masses below the range of floats must not outweigh the law.
EXTREMES: list[tuple[str, Any, str, int, str, str, Any, Any, Any]] = [
    # Between a bound from one round and Chernoff's bound on all: far below any float sum.
    ("4", releases.poisson, "1/100", 1000, "delta", "1", 1e-36, None, 1e-32),
    ("1", releases.poisson, "1/100", 10**6, "delta", "145.4968355", 9.99e-7, None, 1.001e-6),
    ("1000", releases.poisson, "1/2", 10, "delta", "0", 1e-5, None, 1e-2),
    ("1", releases.poisson, "1", 10**4, "delta", "5500", 1e-9, None, 1),
    ("100", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-8),
    ("10000", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-25),
    *(
        row
        for kind in (releases.poisson, releases.replaced)
        for row in (
            # One round loses at least D^2/2 sigma^2, a hundred unsampled ones 100 (2D)^2/2 sigma^2.
            ("1e-9", kind, "1/100", 100, "epsilon", "1e-6", 4.9e17, None, 2.1e20),
            ("1e12", kind, "1/100", 100, "epsilon", "1e-6", 0, 0, 0),
            ("1e12", kind, "1/100", 100, "delta", "0", 1e-15, None, 1e-11),
        )
    ),
    # Except near the two shifts the losses are 0 to 10^17 digits: no precision resolves them.
    ("1e-9", releases.replaced, "1/100", 1, "delta", "0", 0, Fraction(1, 100), 0.0101),
    ("1e12", releases.replaced, "1/100", 1, "epsilon", "1e-6", 0, 0, 0),
    # (1/100) (2/sigma) phi(0), up to the third power of 1/sigma.
    ("1e12", releases.replaced, "1/100", 1, "delta", "0", PHI * (1 - 1e-9), None, PHI * (1 + 1e-9)),
    ("1", releases.replaced, "1e-300", 1, "epsilon", "1e-6", 0, 0, 0),
    ("1", releases.poisson, "1e-9", 100, "epsilon", "1e-6", 0, 0, 0),
    # Next to (1/100)^3, the probability that all three are sampled, from 2/sigma^2 to 9/2 sigma^2.
    ("1e-6", partial(releases.poisson, members=3), "1/100", 1, "epsilon", "1e-6",
     1.9e12, 3e12, 4.6e12),
    # At least the cost of one round, from the normal law alone.
    ("1", releases.poisson, "1e-9", 30, "delta", "1", 6.2097e-105, None, 1e-12),
]  # fmt: skip
EXACT = range(4)  # rows that meet the default width


@by_day(1)
@pytest.mark.parametrize("row", range(len(EXTREMES)))
def test_extreme_parameters_have_a_lower_and_an_upper_bound(row: int) -> None:
    sigma, scheme, rate, rounds, question, at, least, truth, most = EXTREMES[row]
    source: Any = scheme(curve=NORMAL(sigma), rate=rate)
    found = getattr(compose((source, rounds)) if rounds > 1 else source, question)(at, "1e-6")
    assert least <= found.lower <= found.upper <= most
    assert truth is None or found.lower <= truth <= found.upper
    assert row not in EXACT or found.upper - found.lower <= found.upper / 10**6


def group(sigma: str, rate: str, members: int) -> Any:
    return releases.poisson(curve=releases.gaussian(sigma), rate=rate, members=members)


def plane(sigma: float, terms: Mapping[tuple[float, float], float]) -> Any:
    """Return the mixture of a Gaussian in the plane around shifts, in cells of 1/20."""
    grid = np.arange(-9, 11, 0.05)
    bells = {
        at: np.exp(-((grid[:, None] - at[0]) ** 2 + (grid - at[1]) ** 2) / (2 * sigma**2))
        for at in terms
    }
    return sum(w * bells[at] for at, w in terms.items()) * 0.05**2 / (math.tau * sigma**2)


def polar(length: float, turn: float) -> tuple[float, float]:
    return length * math.cos(turn), length * math.sin(turn)


def test_group_members_that_move_in_other_directions_are_not_worse() -> None:
    sigma, q = 1.5, 0.3
    none, two = plane(sigma, {(0, 0): 1}), group("3/2", "3/10", 2)

    def both(b: tuple[float, float], epsilon: str) -> list[float]:
        chances = {(0, 0): (1 - q) ** 2, b: q * (1 - q), (1 + b[0], b[1]): q * q}
        one = plane(sigma, chances) + q * (1 - q) * plane(sigma, {(1, 0): 1})
        return [gain(one, none, epsilon), gain(none, one, epsilon)]

    for epsilon in ("0", "1/5", "3/5"):
        most = [releases.of_pair(pair, epsilon) for ((_, pair),) in two.directions]
        # Equal directions attain the bound.
        assert both((1.0, 0.0), epsilon) == pytest.approx(most, rel=1e-3, abs=1e-9)
        for turn, size in itertools.product((0.5, 1.2, 2.0, math.pi), (1, 0.4)):
            found = both(polar(size, turn), epsilon)
            assert all(x <= y + 1e-9 for x, y in zip(found, most, strict=True))


def test_no_other_pair_of_replaced_units_is_worse() -> None:
    r"""Any two shifts of length at most 1."""
    rng, g, epsilons = np.random.default_rng(5), 0.3, ("0", "1/2", "1")
    source = releases.replaced(NORMAL("4/5"), "3/10")
    ours = [source.delta(each).upper_float for each in epsilons]
    drawn = zip(rng.uniform(0.5, 1, (8, 2)), rng.uniform(0, math.tau, (8, 2)), strict=True)
    shifts = [tuple(map(polar, sizes, turns)) for sizes, turns in drawn]
    found = []
    for up, down in [((0.6, 0.8), (-0.6, -0.8)), *shifts]:
        p, q = (plane(0.8, {(0, 0): 1 - g, at: g}) for at in (up, down))
        found.append([gain(p, q, each) for each in epsilons])
    # Opposite directions attain the bound.
    assert found[0] == pytest.approx(ours, rel=1e-3)
    assert (np.array(found) <= np.array(ours) * (1 + 1e-4)).all()


def test_two_rounds_of_any_mixture_of_shifts() -> None:
    mixture, curve = releases.shifted(NORMAL("3/2"), ["0", "1/4", "3/4"]), NORMAL("3/2")
    laws = NOBODY, weighted("0", "1/4", "3/4")
    a, b = (16 * density(curve, terms)[50_000:74_000:16] for terms in laws)
    two = max(gain(np.outer(p, p), np.outer(q, q), "1") for p, q in ((a, b), (b, a)))
    assert compose((mixture, 2)).delta(1).upper_float == pytest.approx(two, rel=1e-3)
    assert mixture.delta(1).upper <= mixture.unsampled.delta(1).upper
    for bad in (["1/2", "1/4"], ["1"], ["3/2", "-1/2"], ["1/2", "1/2", "0"], [0] * 65 + [1]):
        with pytest.raises(InvalidParameter, match="weights"):
            releases.shifted(curve=curve, weights=bad)
    with pytest.raises(NotDerived, match="verify supports only"):
        certify(compose((mixture, 2)), deltas=["1e-3"])


def test_narrow_noise_at_a_small_rate() -> None:
    r"""A rare large loss dominates."""
    found = ends(compose((group("0.3", "1/1000", 3), 2000)).epsilon("1e-9", "1e-5"))
    assert found.width < found.upper / 10**4
    p, q = (density(NORMAL("0.3"), w)[57_000:64_900] for w in (members(3, "1/1000"), NOBODY))
    at = float(found.upper), float(found.lower)
    below, above = by_fft(p, np.log(p / q), 2000, at, 1.2e-4)
    assert 0.8e-9 < below < 1e-9 < above < 1.2e-9


def test_a_renyi_divergence_beyond_floats_is_at_most_that_without_sampling() -> None:
    group = releases.poisson(NORMAL("1/10"), rate="1/1000", members=3)
    found = group.renyi(2)
    # At least that of the shift by all members: 900 + 2 log(10^-9).
    assert 900 - 18 * math.log(10) < found.upper <= 900
    assert found.lower == 0


@pytest.mark.parametrize(
    ("kind", "rate"), [(releases.poisson, "1e-400"), (releases.replaced, "1e-320")]
)
def test_rates_below_the_smallest_float_are_not_rounded_to_zero(kind: Any, rate: str) -> None:
    found = ends(compose((kind(NORMAL(1), rate), 10)).delta("1/10"))
    assert 0 <= found.lower <= 10 * Fraction(rate)
    assert 0 < found.upper <= 1


def truncated(rate: str, examples: int, most: int, relation: Relation = Relation.ADD_REMOVE) -> Any:
    return releases.truncated(NORMAL(1), rate, examples, most, relation)


@pytest.mark.parametrize("relation", list(Relation))
def test_every_small_dataset_is_within_the_bound(relation: Relation) -> None:
    r"""Neighbours whose other units add nothing attain the lower bound."""
    broken = 0
    for rate, most in (("1/3", 1), ("3/4", 1), ("3/4", 2), ("1", 2)):
        source, q = truncated(rate, 4, most, relation), float(Fraction(rate))
        # The mutant: in a full batch a unit takes the place of another, which moves the sum
        # twice; the mutant counts one move.
        mutant = [
            (w, releases.poisson(curve=NORMAL(1), rate=share, relation=relation))
            for w, share, _ in source.parts()
            if w > 0.01
        ]
        found = {at: source.delta(at) for at in ("0", "1/4", "1")}
        less = {at: sum(float(w) * k.delta(at).upper_float for w, k in mutant) for at in found}
        for others in itertools.combinations_with_replacement((-1, 0, 1), 3):
            end = (-1, *others) if relation is Relation.REPLACE else others
            here, there = (density(NORMAL(1), batch(all_, q, most)) for all_ in ((1, *others), end))
            for at, bound in found.items():
                truth = max(gain(here, there, at), gain(there, here, at))
                assert truth <= bound.upper_float + 5e-6
                broken += truth > less[at] + 1e-5
                if others == (0, 0, 0):
                    assert bound.lower_float == pytest.approx(truth, abs=5e-6)
    assert broken > 0


def test_a_batch_that_is_never_truncated_is_a_poisson_sample() -> None:
    plain = releases.poisson(NORMAL(1), "1/10")
    whole = truncated("1/10", 50, 50)
    assert whole.directions == plain.directions
    assert compose((whole, 20)).epsilon("1e-5") == compose((plain, 20)).epsilon("1e-5")
    swapped = releases.replaced(NORMAL(1), "1/10")
    assert truncated("1/10", 50, 50, Relation.REPLACE).directions == swapped.directions
    # Every unit is always present, and half of them are kept.
    ((chance, rate, _),) = truncated("1", 50, 25).parts()
    assert chance == 1
    assert rate == truncated("1", 50, 25).kept.upper == Fraction(1, 2)


def test_one_round_lies_between_its_bounds() -> None:
    source = truncated("1/4", 4, 1)
    back = ends(source.epsilon(source.delta("1/10", "1e-12").upper, "1e-10"))
    assert back.upper_float == pytest.approx(0.1, rel=1e-9)
    assert back.lower < back.upper
    assert source.epsilon(0).upper == math.inf
    assert source.scope == releases.ADD_REMOVE
    assert source.assumptions == NORMAL(1).assumptions
    found, least = (each.renyi(2, "1e-3") for each in (source, source.least))
    assert found.lower == least.lower
    assert least.upper < found.upper < math.inf
