r"""Theorems of CSB compared with exact values: 1, 3, 5, 6 and 7, Lemma 1, and the bonuses.

CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private Combinatorial
Semi-Bandits" (ICML 2020). Its real-valued Laplace noise is replaced by discrete Laplace noise on
rewards in g steps.

The bonus of a confidence bound states no privacy, but must cover noise and rewards. The paper
writes "log" for the levels of a binary tree: base 2 is the most favourable interpretation. Its
local bonus has an ambiguous formula, so both constants, 4 and 4 sqrt 2, are compared. Theorems 5
and 6 are lower bounds on the regret. They depend on how much information (KL divergence) a private
reward can carry, and randomised response has the most (Kairouz, Oh and Viswanath 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.guarantees.bound import Bound
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import WIDTH_BITS
from bandits.papers.chowdhury_zhou import least_threshold
from bandits.papers.table import Claim, Found, LaterRow, along, decimals
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.numbers.enclosure import Enclosure, ball, narrow

_STEPS: Final = 100
_HORIZON: Final = 10**5
_PULLS: Final = 1000
_FAIR: Final = Binomial(trials=_PULLS, probability=Fraction(1, 2))

_csb = partial(Claim, "CSB", erratum="7")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a claim of this paper with the exact value."""
    for e in [Fraction(1)] if quick else [Fraction(1, 2), Fraction(1), Fraction(10)]:
        for K in (2,) if quick else (1, 2, 8):
            yield _local("Theorem 1 (Algorithm 1)", e, K, K)
        yield _local("Theorem 3 (Algorithm 2)", e, 1, 1)
    for T in (4, 10**5) if quick else (2, 4, 5, 64, 1000, 10**5):
        yield _tree("Lemma 1", T, Fraction(1), 1)
        yield _tree("Theorem 7 (Algorithm 3)", T, Fraction(1), 2)
        yield _tree("ours: scale K levels/epsilon", T, Fraction(1), None)
    yield _rewards(Fraction(10), "4", Enclosure.exactly(4))
    yield _rewards(Fraction(10), "4 sqrt 2", narrow(lambda: 4 * arb(2).sqrt(), WIDTH_BITS))
    yield _reward_term()
    yield _central(2, Fraction(1))
    for e in [Fraction(1, 2)] if quick else [Fraction(1, 10), Fraction(1, 2)]:
        yield _lower("Theorem 5", e, "Delta/B_inf", Fraction(1, 10))
        yield _lower("Theorem 6", e, "Delta/(B_1 K)", Fraction(1, 10))


def csb_tree_levels(horizon: int) -> int:
    r"""The largest number of released sums that contain one value: floor(log2 T) + 1.

    T is ``horizon``, and the sums are those of the tree nodes [(j-1) 2^i + 1, j 2^i]. The first
    value is in the most sums: one node of every size 2^i <= T.
    """
    return horizon.bit_length()


def _tree_scale(T: int, mass: int, e: Fraction) -> Enclosure:
    # Lemma 1: each node has Laplace noise of scale mass log2(T)/epsilon; in Algorithm 3 mass is 2K.
    if T.bit_count() == 1:
        return Enclosure.exactly(mass * (T.bit_length() - 1) / e)
    return narrow(lambda: ball(mass / e) * ball(T).log() / ball(2).log(), WIDTH_BITS)


@_csb(
    "{theorem}",
    "K = {K}, epsilon = {e}, 100 steps",
    "epsilon",
    "{sent} rewards of one user, each with discrete Laplace noise of scale K/epsilon",
)
def _local(theorem: str, e: Fraction, K: int, sent: int) -> Found:
    noise = DiscreteLaplace(scale=_STEPS * K / e)
    return e, PrivacyCurve(noise=noise, sensitivity=Sensitivity.l1(_STEPS * sent)).epsilon(0)


@_csb(
    "{statement}",
    "T = {T}, epsilon = {e}, mass 1",
    "epsilon",
    "a value is in {levels} sums, each with noise of scale {scale}",
)
def _tree(statement: str, T: int, e: Fraction, mass: int | None) -> Found:
    # One value of mass 1 is in `levels` nodes.
    levels = csb_tree_levels(T)
    scale = Enclosure.exactly(levels / e) if mass is None else _tree_scale(T, mass, e)

    def loss(each: Fraction) -> Enclosure:
        noise, moved = DiscreteLaplace(scale=_STEPS * each), Sensitivity.l1(_STEPS * levels)
        return PrivacyCurve(noise=noise, sensitivity=moved).enclose_epsilon(0)

    return e, along(scale, loss), {"levels": levels, "scale": decimals(scale)}


def _unit() -> arb:
    # The unit sqrt(ln T/T_i) of bonuses.
    return (ball(_HORIZON).log() / _PULLS).sqrt()


@_csb(
    "Algorithm 2, its bonus with c = {label}",
    "epsilon = {e}, T = 100000, T_i = 1000, failure T^-4",
    "the necessary bonus/sqrt(ln T/T_i) for rewards alone",
    "the bonus has no term for the rewards and is meant for epsilon <= 1",
)
def _rewards(e: Fraction, label: str, c: Enclosure) -> Found:
    # `excess` is a lower bound: for every smaller r a mean of fair bits exceeds 1/2 + r with a
    # probability above the failure probability. Hoeffding's inequality gives the upper bound sqrt(2
    # ln T/T_i) for rewards of any law.
    excess = Fraction(least_threshold(_FAIR, Fraction(1, _HORIZON**4)), _PULLS) - Fraction(1, 2)
    needed = Bound(
        lower=narrow(lambda: ball(excess) / _unit(), WIDTH_BITS).lower,
        upper=narrow(lambda: arb(2).sqrt(), WIDTH_BITS).upper,
        method="exact tail",
        theorem="a lower bound from fair bits, an upper bound from Hoeffding's inequality",
    )
    return Enclosure(c.lower / e, c.upper / e), needed


@_csb(
    "ours: a reward term sqrt(2 ln T/T_i) in addition to that of the noise",
    "T = 100000, T_i = 1000, fair bits",
    "the probability that the mean reward is outside this term",
    "T^-4 by Hoeffding's inequality",
)
def _reward_term() -> Found:
    reach = narrow(lambda: _PULLS * (arb(1) / 2 + arb(2).sqrt() * _unit()), WIDTH_BITS)
    return Fraction(1, _HORIZON**4), _FAIR.enclose_sf(int(reach.lower))


@_csb(
    "Algorithm 3, its bonus for the noise",
    "K = {K}, epsilon = {e}, T = 100000, failure T^-3",
    "the necessary bonus times T_i for the tree",
    "12 K ln(T)^3/epsilon, compared with the exact tail of the noise",
)
def _central(K: int, e: Fraction) -> Found:
    # A sum up to t <= T adds one node for each binary digit 1 of t, at most `levels` nodes.
    scale = _tree_scale(_HORIZON, 2 * K, e)
    wide = Fraction(round(Fraction(scale.upper) * _STEPS * 1000) + 1, 1000)
    noise = PolyaDifference(shape=csb_tree_levels(_HORIZON), scale=wide)
    needed = Bound(
        upper=Fraction(least_threshold(noise, Fraction(1, _HORIZON**3)), _STEPS),
        method="exact tail",
        theorem="the tail of the noise of all levels, an upper bound for fewer levels",
    )
    return narrow(
        lambda: ball(Fraction(12 * K) / e) * ball(_HORIZON).log() ** 3, WIDTH_BITS
    ), needed


def information(epsilon: Fraction, gap: Fraction) -> Enclosure:
    r"""The KL divergence of private randomised responses to bits of mean 1/2 - ``gap`` and 1/2."""

    def divergence() -> arb:
        up = ball(epsilon).exp()
        # The bit is unchanged with probability e^epsilon/(1 + e^epsilon) and flipped otherwise.
        moved = ball(gap) * (up - 1) / (up + 1)
        one, other = arb(1) / 2 - moved, arb(1) / 2 + moved
        return one * (2 * one).log() + other * (2 * other).log()

    return narrow(divergence, WIDTH_BITS)


@Claim(
    "CSB",
    "{theorem}, its lower bound",
    "epsilon = {epsilon}, {scaled} = {gap}",
    "the information of one private reward",
    "the bound on regret is too small by this factor compared with randomised response",
)
def _lower(theorem: str, epsilon: Fraction, scaled: str, gap: Fraction) -> Found:
    # Regret/ln T >= (number of other arms) Delta/information; the paper prints 128 epsilon^2 gap^2.
    return 128 * epsilon**2 * gap**2, information(epsilon, gap)
