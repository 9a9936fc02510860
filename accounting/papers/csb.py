r"""CSB: Chen, Zheng, Zhou, Yang, Chen and Wang, "(Locally) Differentially Private Combinatorial
Semi-Bandits" (ICML 2020): the noise of its tree and the bonuses of its algorithms.

The paper writes "log" for the levels of a binary tree: base 2 is the reading that favours it. The
constant inside its local bonus is 4 or 4 sqrt 2 (the print does not tell), so it is an argument.
"""

from __future__ import annotations

from fractions import Fraction

from accounting.papers.arguments import WIDTH_BITS, epsilon_of, users_of
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

__all__ = ["csb_central_bonus", "csb_local_bonus", "csb_tree_levels", "csb_tree_scale"]


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
    e, K = epsilon_of(epsilon), users_of(arms)
    if isinstance(constant, Enclosure):
        return Enclosure(constant.lower * K / e, constant.upper * K / e)
    c = positive_rational("constant", constant, "it multiplies the bonus")
    return Enclosure.exactly(c * K / e)


def csb_central_bonus(horizon: int, arms: int, epsilon: RationalLike) -> Enclosure:
    r"""CSB Algorithm 3: its bonus for the noise, times T_i: 12 K ln(T)^3/epsilon.

    >>> csb_central_bonus(10**5, 2, 1).upper_float
    36624.2...
    """
    T, K, e = integer("horizon", horizon, at_least=2), users_of(arms), epsilon_of(epsilon)
    return narrow(lambda: ball(Fraction(12 * K) / e) * ball(T).log() ** 3, WIDTH_BITS)
