r"""The privacy theorems of CSB beside exact curves: Theorems 1, 3 and 7, Lemma 1, and its bonuses.

CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private Combinatorial
Semi-Bandits" (ICML 2020). Its Laplace noise on the reals is replayed as discrete Laplace noise on
rewards in g steps. A bonus is no statement about privacy, but it must cover noise and rewards both.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.claims.bound import Bound
from accounting.papers.arguments import WIDTH_BITS
from accounting.papers.csb import (
    csb_central_bonus,
    csb_local_bonus,
    csb_tree_levels,
    csb_tree_scale,
)
from accounting.release.curve import PrivacyCurve
from accounting.replays.row import Judgement, LaterRow, shown
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import least

__all__ = ["least_threshold", "rows"]

_STEPS: Final = 100
_HORIZON: Final = 10**5
_PULLS: Final = 1000

_of_csb = partial(Judgement, paper="CSB", erratum="7")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Every row of this paper, not yet computed."""
    for e in [Fraction(1)] if quick else [Fraction(1, 2), Fraction(1), Fraction(10)]:
        for K in (2,) if quick else (1, 2, 8):
            yield partial(_local, "Theorem 1 (Algorithm 1)", e, K, K)
        yield partial(_local, "Theorem 3 (Algorithm 2)", e, 1, 1)
    for T in (4, 10**5) if quick else (2, 4, 5, 64, 1000, 10**5):
        yield partial(_tree, T, Fraction(1), "Lemma 1")
        yield partial(_tree, T, Fraction(1), "Theorem 7 (Algorithm 3)")
        yield partial(_tree, T, Fraction(1), "ours: scale K levels/epsilon")
    for label, constant in (("4", Fraction(4)), ("4 sqrt 2", None)):
        yield partial(_rewards, Fraction(10), label, constant)
    yield _reward_term
    yield partial(_central, 2, Fraction(1))


# -- privacy ----------------------------------------------------------------------------------


def _local(statement: str, epsilon: Fraction, arms: int, sent: int) -> Judgement:
    noise = DiscreteLaplace(scale=_STEPS * arms / epsilon)
    curve = PrivacyCurve(noise=noise, sensitivity=Sensitivity.l1(_STEPS * sent))
    return _of_csb(
        statement=statement,
        parameters=f"K = {arms}, epsilon = {epsilon}, {_STEPS} steps",
        quantity="epsilon",
        claimed=Enclosure.exactly(epsilon),
        exact=curve.epsilon(0),
        note=f"{sent} rewards of one user, each with discrete Laplace noise of scale K/epsilon",
    )


def _tree(horizon: int, epsilon: Fraction, statement: str) -> Judgement:
    # One datum of mass 1, which enters `levels` nodes.
    levels = csb_tree_levels(horizon)
    if statement.startswith("ours"):
        scale = Enclosure.exactly(levels / epsilon)
    else:
        scale = csb_tree_scale(horizon, 1 if statement == "Lemma 1" else 2, epsilon)
    spent = [
        PrivacyCurve(
            noise=DiscreteLaplace(scale=_STEPS * Fraction(end)),
            sensitivity=Sensitivity.l1(_STEPS * levels),
        ).enclose_epsilon(0)
        for end in (scale.upper, scale.lower)
    ]
    return _of_csb(
        statement=statement,
        parameters=f"T = {horizon}, epsilon = {epsilon}, mass 1",
        quantity="epsilon",
        claimed=Enclosure.exactly(epsilon),
        exact=Enclosure(spent[0].lower, spent[1].upper),
        note=f"a datum enters {levels} sums, each with noise of scale {shown(scale)}",
    )


# -- bonuses ----------------------------------------------------------------------------------


def least_threshold(noise: Noise, failure: Fraction) -> int:
    r"""The least t with P(X > t) <= ``failure``, decided by enclosures.

    >>> least_threshold(DiscreteLaplace(scale=10), Fraction(1, 1000))
    62
    """
    start = int(noise.quantile(1 - max(failure, Fraction(1, 10**12))))
    return least(lambda t: noise.enclose_sf(t).upper <= failure, start)


def _unit() -> arb:
    # sqrt(ln T/T_i), in which bonuses are stated.
    return (ball(_HORIZON).log() / _PULLS).sqrt()


def _rewards(epsilon: Fraction, label: str, constant: Fraction | None) -> Judgement:
    failure = Fraction(1, _HORIZON**4)
    coins = Binomial(trials=_PULLS, probability=Fraction(1, 2))
    # A mean of fair coins exceeds 1/2 by r with a chance above the failure, for every r below
    # this: a lower end. Hoeffding's inequality gives sqrt(2 ln T/T_i) for rewards of any law.
    excess = Fraction(least_threshold(coins, failure), _PULLS) - Fraction(1, 2)
    low = narrow(lambda: ball(excess) / _unit(), WIDTH_BITS)
    root = narrow(lambda: arb(2).sqrt(), WIDTH_BITS)
    c = Enclosure(4 * root.lower, 4 * root.upper) if constant is None else constant
    return _of_csb(
        statement=f"Algorithm 2, its bonus with c = {label}",
        parameters=f"epsilon = {epsilon}, T = {_HORIZON}, T_i = {_PULLS}, failure T^-4",
        quantity="the bonus/sqrt(ln T/T_i) that rewards alone need",
        claimed=csb_local_bonus(epsilon, c),
        exact=Bound(
            lower=low.lower,
            upper=root.upper,
            method="exact tail",
            theorem="fair coins from below, Hoeffding's inequality from above",
        ),
        note="it has no term for the rewards, and is meant for epsilon <= 1",
    )


def _reward_term() -> Judgement:
    reach = narrow(lambda: _PULLS * (arb(1) / 2 + arb(2).sqrt() * _unit()), WIDTH_BITS)
    coins = Binomial(trials=_PULLS, probability=Fraction(1, 2))
    return _of_csb(
        statement="ours: a reward term sqrt(2 ln T/T_i) beside that of the noise",
        parameters=f"T = {_HORIZON}, T_i = {_PULLS}, fair coins",
        quantity="the chance that rewards leave it",
        claimed=Enclosure.exactly(Fraction(1, _HORIZON**4)),
        exact=coins.enclose_sf(int(reach.lower)),
        note="T^-4 by Hoeffding's inequality",
    )


def _central(arms: int, epsilon: Fraction) -> Judgement:
    # A sum up to any t <= T adds one node for each binary digit of t, at most `levels` of them.
    levels = csb_tree_levels(_HORIZON)
    scale = csb_tree_scale(_HORIZON, 2 * arms, epsilon)
    wide = Fraction(round(Fraction(scale.upper) * _STEPS * 1000) + 1, 1000)
    noise = PolyaDifference(shape=levels, scale=wide)
    needed = Fraction(least_threshold(noise, Fraction(1, _HORIZON**3)), _STEPS)
    return _of_csb(
        statement="Algorithm 3, its bonus for the noise",
        parameters=f"K = {arms}, epsilon = {epsilon}, T = {_HORIZON}, failure T^-3",
        quantity="the bonus times T_i that the tree needs",
        claimed=csb_central_bonus(_HORIZON, arms, epsilon),
        exact=Bound(
            upper=needed,
            method="exact tail",
            theorem="the tail of the sum of all levels' noise, which exceeds that of fewer",
        ),
        note="12 K ln(T)^3/epsilon, beside the exact tail of the noise",
    )
