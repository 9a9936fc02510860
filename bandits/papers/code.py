r"""What samplers of the papers really add: a recipe in floats, and two slips in released code.

Erratum 8: CZ, footnote 6, draws Polya noise as a Poisson number with a Gamma mean, in floats.
Erratum 9: the code released with CZ (sayakrc/Differentially-Private-Bandits, MABPrivate.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from accounting.protocols.paper_parameters import WIDTH_BITS
from accounting.release.curve import PrivacyCurve
from bandits.papers.statement import Judgement, LaterRow
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow

__all__ = ["rows", "shared_draw_delta", "swapped_scale"]

_LARGEST: Final = (1 << 63) - 1

_swapped_rate = partial(
    Judgement, paper="CZ", statement="released code, Polya sampler", erratum="9a"
)
_one_draw = partial(Judgement, paper="CZ", erratum="9b")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Every row of the samplers, not yet computed."""
    del quick
    n, e, g = 1024, Fraction(1, 2), 16
    yield partial(_recipe, n, e, g)
    yield partial(_shares, n, e, g, "8")
    yield partial(_swapped_variance, n, e, g)
    yield partial(_swapped_zeros, n, e, g)
    yield partial(_swapped_epsilon, n, e, g)
    yield partial(_shares, n, e, g, "9a")
    yield partial(_shared, e, (1, 0))
    yield partial(_shared, e, (1, 1))
    yield partial(_separate, e)


# -- erratum 8 --------------------------------------------------------------------------------


def _recipe(users: int, e: Fraction, g: int) -> Judgement:
    return Judgement(
        paper="CZ",
        statement="footnote 6 (Gamma-Poisson, in floats)",
        erratum="8",
        parameters=f"n = {users}, epsilon = {e}, g = {g}, integers of 64 bits",
        quantity="epsilon",
        claimed=Enclosure.exactly(e),
        exact=_bounded(_LARGEST * users, g),
        note="noise that cannot exceed a bound shows the data at that bound, whatever its law "
        "below it",
    )


def _bounded(largest: float, shift: int) -> Enclosure:
    # The largest value of the shifted noise is one that the other world never shows.
    return Enclosure.infinite() if largest < math.inf and shift else Enclosure.exactly(0)


def _shares(users: int, e: Fraction, g: int, erratum: str) -> Judgement:
    total = _of_shares(users, g / e)
    return Judgement(
        paper="CZ",
        statement="ours: the sum of exact Polya shares",
        erratum=erratum,
        parameters=f"n = {users}, epsilon = {e}, g = {g}",
        quantity="epsilon",
        claimed=Enclosure.exactly(e),
        exact=PrivacyCurve(noise=total, sensitivity=g).epsilon(0),
        note="drawn from integers of any size, with no float",
    )


# -- erratum 9(a) -----------------------------------------------------------------------------


def swapped_scale(scale: Fraction) -> Enclosure:
    r"""The scale of a Gamma-Poisson sampler that is given (1-beta)/beta for beta/(1-beta).

    Poisson with a Gamma mean of shape r and scale x is Polya(r, x/(1+x)); the right x makes that
    beta = e^(-1/s), the other one 1 - beta. So the scale is -1/ln(1-beta).

    >>> swapped_scale(Fraction(32)).upper_float
    0.287...
    """
    return narrow(lambda: -1 / (-(-1 / ball(scale)).expm1()).log(), WIDTH_BITS)


def _of_shares(users: int, scale: Fraction) -> Noise:
    # The sum of n differences of Polya laws of shape 1/n.
    return PolyaDifference(shape=Fraction(1, users) * users, scale=scale)


def _swapped(users: int, e: Fraction, g: int) -> tuple[Noise, Noise]:
    # The whole noise, for the two ends of the scale.
    found = swapped_scale(g / e)
    return _of_shares(users, Fraction(found.lower)), _of_shares(users, Fraction(found.upper))


def _swapped_variance(users: int, e: Fraction, g: int) -> Judgement:
    low, high = (_hull(noise.variance) for noise in _swapped(users, e, g))
    return _swapped_rate(
        parameters=f"n = {users}, epsilon = {e}, g = {g}",
        quantity="the variance that the noise needs",
        claimed=Enclosure(low.lower, high.upper),
        exact=_hull(DiscreteLaplace(scale=g / e).variance),
        note="it is given (1-beta)/beta where beta/(1-beta) belongs",
    )


def _swapped_zeros(users: int, e: Fraction, g: int) -> Judgement:
    low, high = (noise.enclose_pmf(0) for noise in _swapped(users, e, g))
    return _swapped_rate(
        parameters=f"n = {users}, epsilon = {e}, g = {g}",
        quantity="the chance that a sum carries no noise",
        claimed=DiscreteLaplace(scale=g / e).enclose_pmf(0),
        # A smaller scale has more mass at 0.
        exact=Enclosure(high.lower, low.upper),
        note="claimed is that of discrete Laplace noise of scale g/epsilon",
    )


def _swapped_epsilon(users: int, e: Fraction, g: int) -> Judgement:
    low, high = (
        PrivacyCurve(noise=noise, sensitivity=g).enclose_epsilon(0)
        for noise in _swapped(users, e, g)
    )
    return _swapped_rate(
        parameters=f"n = {users}, epsilon = {e}, g = {g}",
        quantity="epsilon",
        claimed=Enclosure.exactly(e),
        exact=Enclosure(high.lower, low.upper),
        note="the largest loss of the noise that it adds",
    )


def _hull(value: Fraction | Enclosure) -> Enclosure:
    return Enclosure.exactly(value) if isinstance(value, Fraction) else value


# -- erratum 9(b) -----------------------------------------------------------------------------


def shared_draw_delta(moves: tuple[int, ...], noise: Noise, epsilon: Fraction) -> Enclosure:
    r"""delta(epsilon) of q + (Z, ..., Z) with one draw Z, when q moves by ``moves``.

    Differences of coordinates carry no noise: where ``moves`` changes one, the two worlds share no
    output. Where all coordinates move alike, one of them says what all say.

    >>> shared_draw_delta((1, 0), DiscreteLaplace(scale=2), Fraction(1, 2))
    Enclosure([1, 1])
    >>> shared_draw_delta((1, 1), DiscreteLaplace(scale=2), Fraction(1, 2))
    Enclosure([0, 0])
    """
    if len(set(moves)) > 1:
        return Enclosure.exactly(1)
    if moves[0] == 0:
        return Enclosure.exactly(0)
    return PrivacyCurve(noise=noise, sensitivity=abs(moves[0])).enclose_delta(epsilon)


def _shared(e: Fraction, moves: tuple[int, int]) -> Judgement:
    return _one_draw(
        statement="released code, DP-SE",
        parameters=f"2 arms, epsilon = {e}, sums that move by {moves}",
        quantity=f"delta({e})",
        claimed=Enclosure.exactly(0),
        exact=shared_draw_delta(moves, DiscreteLaplace(scale=1 / e), e),
        note="one draw for the whole vector cancels in every difference of arms"
        if len(set(moves)) > 1
        else "what all arms share is hidden",
    )


def _separate(e: Fraction) -> Judgement:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=1 / e), sensitivity=Sensitivity.l1(1))
    return _one_draw(
        statement="ours: one draw for each arm",
        parameters=f"2 arms, epsilon = {e}, one sum moves by 1",
        quantity=f"delta({e})",
        claimed=Enclosure.exactly(0),
        exact=curve.delta(e),
        note="independent draws hide every sum and every difference of sums",
    )
