"""Tests of subsampled real noise, each scheme: one round by quadrature, extremes, bad input."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting import PrivacyCurve, compose
from dpcore import DiscreteGaussian
from dpcore.mechanism import Scope
from tests.effort import by_day
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends

Terms = list[float]  # weights of the shifts -1, 0, 1, ...
X = np.arange(-60.0, 60.0, 1e-3) + 5e-4


def density(curve: Any, terms: Terms) -> Any:
    """Return the mixture of the noise around shifts, each with its weight, in cells of 1e-3."""
    law, size = (stats.norm, "sigma") if hasattr(curve.noise, "sigma") else (stats.laplace, "scale")
    scale = float(Fraction(getattr(curve.noise, size)))
    return 1e-3 * sum(w * law.pdf(X, at, scale) for at, w in enumerate(terms, -1) if w)


def members(count: int, rate: str) -> Terms:
    return [0.0, *stats.binom.pmf(range(count + 1), count, float(Fraction(rate))).tolist()]


def swapped(rate: str) -> tuple[Terms, Terms]:
    g = float(Fraction(rate))
    return [0.0, 1 - g, g], [g, 1 - g]


PHI = 2e-14 / math.sqrt(math.tau)
NORMAL, LAPLACE = releases.gaussian, releases.laplace
NOBODY: Terms = [0.0, 1.0]
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
        (releases.replaced, curve, {"rate": q}, *swapped(q), epsilon)
        for curve, q, epsilon in (
            (NORMAL("1"), "1/100", "1/100"), (NORMAL("1/2"), "1/5", "1/2"),
            (NORMAL("4"), "1/3", "1/20"), (LAPLACE("2"), "1/10", "1/20"),
            (LAPLACE("1"), "1/2", "1/2"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "curve", "given", "here", "there", "epsilon"), ROUNDS)
def test_one_round_is_the_worse_of_two_directions(
    scheme: Any, curve: Any, given: dict[str, Any], here: Terms, there: Terms, epsilon: str
) -> None:
    source, e = scheme(curve=curve, **given), float(Fraction(epsilon))
    p, q = density(curve, here), density(curve, there)
    both = [float(np.maximum(a - math.exp(e) * b, 0).sum()) for a, b in ((p, q), (q, p))]
    found = ends(source.delta(epsilon, "1e-12"))
    assert (found.lower_float, found.upper_float) == pytest.approx((max(both),) * 2, rel=1e-6)
    assert source.epsilon(Fraction(found.upper), "1e-10").upper_float == pytest.approx(e, rel=1e-9)
    for ((_, pair),), truth in zip(source.directions, both, strict=False):
        assert releases.of_pair(pair, epsilon) == pytest.approx(truth, rel=1e-6, abs=1e-14)
    # The mutant: the pair with and without one unit costs less than a group or a replaced unit.
    alone = releases.poisson(curve=curve, rate=given["rate"]).delta(epsilon)
    assert given.get("members") == 1 or alone.upper < max(both) * 0.99


# Sigma, scheme and rate, rounds, quantity and its point; both bounds lie between least and most, on
# either side of the reference. Masses below the range of floats must not outweigh the law.
EXTREMES: list[tuple[str, Any, str, int, str, str, Any, Any, Any]] = [
    # Between a bound from one round and Chernoff's bound on all: far below any float sum.
    ("4", releases.poisson, "1/100", 1000, "delta", "1", 1e-36, None, 1e-32),
    ("1", releases.poisson, "1/100", 10**6, "delta", "145.4968355", 9.99e-7, None, 1.001e-6),
    ("1000", releases.poisson, "1/2", 10, "delta", "0", 1e-5, None, 1e-2),
    ("1", releases.poisson, "1", 10**4, "delta", "5500", 1e-9, None, 1),
    ("100", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-8),
    ("1000", releases.poisson, "1/100", 2, "delta", "1/2000", 0, None, 1e-25),
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
    # All losses but those of the two shifts are 0 to 10^17 digits: no precision resolves them.
    ("1e-9", releases.replaced, "1/100", 1, "delta", "0", 0, Fraction(1, 100), 0.0101),
    ("1e12", releases.replaced, "1/100", 1, "epsilon", "1e-6", 0, 0, 0),
    # (1/100) (2/sigma) phi(0), up to the third power of 1/sigma.
    ("1e12", releases.replaced, "1/100", 1, "delta", "0", PHI * (1 - 1e-9), None, PHI * (1 + 1e-9)),
    ("1", releases.replaced, "1e-300", 1, "epsilon", "1e-6", 0, 0, 0),
    # Next to (1/100)^3, the probability that all three are sampled, from 2/sigma^2 to 9/2 sigma^2.
    ("1e-6", partial(releases.poisson, members=3), "1/100", 1, "epsilon", "1e-6",
     1.9e12, 3e12, 4.6e12),
]  # fmt: skip
EXACT = range(4)  # rows that meet the default width


@by_day(9)
@pytest.mark.parametrize("row", range(len(EXTREMES)))
def test_extremes_are_held_from_both_sides(row: int) -> None:
    sigma, scheme, rate, rounds, question, at, least, truth, most = EXTREMES[row]
    source: Any = scheme(curve=NORMAL(sigma), rate=rate)
    found = getattr(compose((source, rounds)) if rounds > 1 else source, question)(at, "1e-6")
    assert least <= found.lower <= found.upper <= most
    assert truth is None or found.lower <= truth <= found.upper
    assert row not in EXACT or found.upper - found.lower <= found.upper / 10**6


INTEGERS = PrivacyCurve(
    noise=DiscreteGaussian(sigma_squared=4), sensitivity=1, scope=releases.ADD_REMOVE
)
KINDS = [LAPLACE(2), INTEGERS, NORMAL(1, scope=Scope())]
COUNTS = (0, -1, "1.5")
GOOD: dict[str, Any] = {"curve": NORMAL(1), "rate": "1/2"}


@pytest.mark.parametrize(
    ("scheme", "good", "bad"),
    [
        (
            releases.poisson,
            {"members": 2},
            {"curve": KINDS, "members": (0, -1, 65, "2.5")},
        ),
        (releases.poisson, {}, {"curve": KINDS[2:]}),
        (releases.replaced, {}, {"curve": KINDS[1:]}),
        (
            releases.truncated,
            {"examples": 100, "most": 10},
            {
                "curve": [*KINDS[::2], releases.poisson(curve=NORMAL(1), rate="1/2")],
                "examples": COUNTS,
                "most": COUNTS,
            },
        ),
        (
            releases.allocated,
            {"rounds": 10, "rate": None},
            {"curve": KINDS, "rounds": (0, -1, 10**7, "1.5"), "picks": (0, 11, "1.5")},
        ),
    ],
)
def test_bad_input_is_refused(scheme: Any, good: dict[str, Any], bad: dict[str, Any]) -> None:
    whole = {name: value for name, value in {**GOOD, **good}.items() if value is not None}
    scheme(**whole)
    rates = {"rate": (0, "3/2", -1, "nan", math.inf)} if "rate" in whole else {}
    releases.refuses(scheme, whole, {**rates, **bad})
