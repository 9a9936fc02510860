r"""Noise samplers of the papers: a floating-point method in a paper, and two bugs in released code.

The numbers of errata are those of docs/errata.md. Erratum 8 is the method in footnote 6 of
Chowdhury and Zhou (2023, "CZ" in the table), which draws Polya noise as a Poisson variable with a
Gamma mean, in floats. Errata 9a and 9b are in the code released with this paper
(sayakrc/Differentially-Private-Bandits, MABPrivate.py): a wrong parameter of the Polya sampler, and
one noise draw for all arms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import WIDTH_BITS
from bandits.papers.table import Claim, Found, LaterRow, along
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow

_SIZES = "n = {n}, epsilon = {e}, g = {g}"
_POLYA = "released code, Polya sampler"

_cz = partial(Claim, "CZ")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a claim about a sampler with the exact value."""
    n, e, g = 1024, Fraction(1, 2), 16
    yield _recipe(n, e, g)
    yield _shares(n, e, g, "8")
    yield _swapped_variance(n, e, g)
    yield _swapped_zeros(n, e, g)
    yield _swapped_epsilon(n, e, g)
    yield _shares(n, e, g, "9a")
    yield _shared(e, (1, 0), "one draw for all arms cancels in every difference of two arms")
    yield _shared(e, (1, 1), "a single draw still hides an equal change of all arms")
    yield _separate(e)


@_cz(
    "footnote 6 (Gamma-Poisson, in floats)",
    f"{_SIZES}, integers of 64 bits",
    "epsilon",
    "bounded noise reveals the data at its bound, for every law",
    erratum="8",
)
def _recipe(n: int, e: Fraction, g: int) -> Found:
    # The largest value of the noise shifted by g is impossible for the other dataset.
    return e, Enclosure.infinite() if g else 0


@_cz(
    "ours: the sum of exact Polya shares",
    _SIZES,
    "epsilon",
    "drawn from integers of any size, without floats",
    erratum="{erratum}",
)
def _shares(n: int, e: Fraction, g: int, erratum: str) -> Found:
    return e, PrivacyCurve(noise=_of_shares(n, g / e), sensitivity=g).epsilon(0)


def swapped_scale(scale: Fraction) -> Enclosure:
    r"""The effective scale of a Gamma-Poisson sampler with (1-beta)/beta instead of beta/(1-beta).

    Here beta = e^(-1/s) for the intended scale s = ``scale``. A Poisson variable with a Gamma mean
    of shape r and scale x is Polya with parameter x/(1+x). For x = beta/(1-beta) this parameter is
    beta. For the inverse of this x it is 1 - beta, so the effective scale is -1/ln(1-beta).
    """
    return narrow(lambda: -1 / (-(-1 / ball(scale)).expm1()).log(), WIDTH_BITS)


def _of_shares(users: int, scale: Fraction) -> Noise:
    # The law of the sum of n differences of Polya draws of shape 1/n.
    return PolyaDifference(shape=Fraction(1, users) * users, scale=scale)


def _swapped(n: int, ratio: Fraction, of: Callable[[Noise], Fraction | Enclosure]) -> Enclosure:
    # A quantity of the actual noise, monotone in the scale.
    return along(swapped_scale(ratio), lambda scale: of(_of_shares(n, scale)))


@_cz(
    _POLYA,
    _SIZES,
    "the variance that the noise needs",
    "the code has (1-beta)/beta instead of beta/(1-beta)",
    erratum="9a",
)
def _swapped_variance(n: int, e: Fraction, g: int) -> Found:
    added = _swapped(n, g / e, lambda noise: noise.variance)
    return added, DiscreteLaplace(scale=g / e).variance


@_cz(
    _POLYA,
    _SIZES,
    "the probability that a sum has noise 0",
    "the claim is that of discrete Laplace noise of scale g/epsilon",
    erratum="9a",
)
def _swapped_zeros(n: int, e: Fraction, g: int) -> Found:
    added = _swapped(n, g / e, lambda noise: noise.enclose_pmf(0))
    return DiscreteLaplace(scale=g / e).enclose_pmf(0), added


@_cz(_POLYA, _SIZES, "epsilon", "the largest loss of the added noise", erratum="9a")
def _swapped_epsilon(n: int, e: Fraction, g: int) -> Found:
    def loss(noise: Noise) -> Enclosure:
        return PrivacyCurve(noise=noise, sensitivity=g).enclose_epsilon(0)

    return e, _swapped(n, g / e, loss)


def shared_draw_delta(moves: tuple[int, ...], noise: Noise, epsilon: Fraction) -> Enclosure:
    r"""The delta at ``epsilon`` of several sums to which one common draw of ``noise`` is added.

    ``moves`` are the changes of the sums between the two datasets.
    """
    if len(set(moves)) > 1:
        return Enclosure.exactly(1)
    if moves[0] == 0:
        return Enclosure.exactly(0)
    return PrivacyCurve(noise=noise, sensitivity=abs(moves[0])).enclose_delta(epsilon)


@_cz(
    "released code, DP-SE",
    "2 arms, epsilon = {e}, sums that change by {moves}",
    "delta({e})",
    "{why}",
    erratum="9b",
)
def _shared(e: Fraction, moves: tuple[int, int], why: str) -> Found:
    return 0, shared_draw_delta(moves, DiscreteLaplace(scale=1 / e), e)


@_cz(
    "ours: one draw for each arm",
    "2 arms, epsilon = {e}, one sum changes by 1",
    "delta({e})",
    "independent draws protect every sum and every difference of sums",
    erratum="9b",
)
def _separate(e: Fraction) -> Found:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=1 / e), sensitivity=Sensitivity.l1(1))
    return 0, curve.delta(e)
