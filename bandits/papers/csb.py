r"""The privacy theorems of CSB beside exact curves: Theorems 1, 3 and 7, Lemma 1, and its bonuses.

CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private Combinatorial
Semi-Bandits" (ICML 2020). Its Laplace noise on the reals is replayed as discrete Laplace noise on
rewards in g steps. A bonus is no statement about privacy, but it must cover noise and rewards both.

The paper writes "log" for the levels of a binary tree: base 2 is the reading that favours it. The
constant inside its local bonus is 4 or 4 sqrt 2 (the print does not tell), so it is an argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.claims.bound import Bound
from accounting.protocols.paper_parameters import WIDTH_BITS, epsilon_of
from accounting.release.curve import PrivacyCurve
from bandits.papers.statement import Judgement, LaterRow, shown
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

__all__ = ["csb_central_bonus", "csb_local_bonus", "csb_tree_levels", "csb_tree_scale"]
__all__ += ["least_threshold", "rows"]

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


# -- what is printed --------------------------------------------------------------------------


def csb_tree_levels(horizon: int) -> int:
    r"""How many released sums one datum of T enters: nodes [(j-1) 2^i + 1, j 2^i] within T.

    The first datum enters the most: one node of every size 2^i <= T, floor(log2 T) + 1 of them.

    >>> csb_tree_levels(1), csb_tree_levels(4), csb_tree_levels(10**5)
    (1, 3, 17)
    """
    return integer("horizon", horizon, at_least=1).bit_length()


def csb_tree_scale(horizon: int, mass: RationalLike, epsilon: RationalLike) -> Enclosure:
    r"""CSB Lemma 1: each node has Laplace noise of scale ||X||_1 log2(T)/epsilon, T >= 2.

    Algorithm 3 takes it with a mass of 2K.

    >>> csb_tree_scale(4, 1, 1)
    Enclosure([2, 2])
    """
    T, e = integer("horizon", horizon, at_least=2), epsilon_of(epsilon)
    m = positive_rational("mass", mass, "a datum that cannot move needs no noise")
    exponent = T.bit_length() - 1
    if T.bit_count() == 1:
        return Enclosure.exactly(m * exponent / e)
    return narrow(lambda: ball(m / e) * ball(T).log() / ball(2).log(), WIDTH_BITS)


def csb_local_bonus(
    epsilon: RationalLike, constant: RationalLike | Enclosure, arms: int = 1
) -> Enclosure:
    r"""CSB Algorithms 1 (``arms`` = K) and 2 (1): c K/epsilon, in units of sqrt(ln T/T_i).

    >>> csb_local_bonus(10, 4)
    Enclosure([0.4, 0.4])
    """
    e, K = epsilon_of(epsilon), integer("arms", arms, at_least=1)
    if isinstance(constant, Enclosure):
        return Enclosure(constant.lower * K / e, constant.upper * K / e)
    c = positive_rational("constant", constant, "it multiplies the bonus")
    return Enclosure.exactly(c * K / e)


def csb_central_bonus(horizon: int, arms: int, epsilon: RationalLike) -> Enclosure:
    r"""CSB Algorithm 3: its bonus for the noise, times T_i: 12 K ln(T)^3/epsilon.

    >>> csb_central_bonus(10**5, 2, 1).upper_float
    36624.2...
    """
    T, K, e = (
        integer("horizon", horizon, at_least=2),
        integer("arms", arms, at_least=1),
        epsilon_of(epsilon),
    )
    return narrow(lambda: ball(Fraction(12 * K) / e) * ball(T).log() ** 3, WIDTH_BITS)


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
