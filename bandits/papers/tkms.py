r"""The privacy theorems of TKMS beside exact curves: Theorem C.1 (Algorithm 3), and its bandits.

TKMS: Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed Bandits in the
Shuffle Model" (NeurIPS 2021). The shuffled bits show their sum and nothing else, so the binomial
law of the noise bits decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.protocols.box import BinomialBox
from accounting.protocols.paper_parameters import WIDTH_BITS, BitNoise, tkms_bits, tkms_threshold
from accounting.protocols.shuffled_bits import fewest_bits
from bandits.papers.statement import Judgement, LaterRow, shown
from dpcore.numbers.ceilings import ceiling
from dpcore.numbers.enclosure import Enclosure, ball, narrow

__all__ = ["bits_box", "rows"]

_ROUNDED: Final = 1 << 64
_DELTA: Final = Fraction(1, 10**6)

_of_bits = partial(Judgement, paper="TKMS", erratum="5")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Every row of this paper, not yet computed."""
    points = [(1, "0.5"), (10**4, "0.5")]
    if not quick:
        points += [(100, "0.1"), (100, "0.9"), (1000, "0.5"), (10**5, "0.9")]
    for users, epsilon in points:
        yield partial(_theorem, users, Fraction(epsilon))
    for epsilon in ("0.5", "0.1"):
        yield partial(_bits, Fraction(epsilon))
        yield partial(_exact_bits, Fraction(epsilon))
    for epsilon in ("0.5", "0.1"):
        yield partial(_comparisons, Fraction(epsilon))
    yield partial(_tail, 10**6, Fraction(1, 2))
    yield partial(_bandit, "SDP-AE (batches of m = 1000)", Fraction(1, 2), (1000,))
    sizes = (1, 1024, 1 << 14) if quick else tuple(1 << t for t in range(0, 18, 2))
    yield partial(_bandit, "VB-SDP-AE (batches of 2^t)", Fraction(1, 2), sizes)


def bits_box(found: BitNoise, bound: int = 1) -> BinomialBox:
    r"""The noise of a bit protocol; a probability that is irrational is taken within 2^-64.

    >>> bits_box(tkms_bits(1, "0.5", "1e-6")).trials
    5572
    """
    low, high = Fraction(found.probability.lower), Fraction(found.probability.upper)
    near = low if low == high else Fraction(round(low * _ROUNDED), _ROUNDED)
    return BinomialBox(trials=found.trials, probability=near, bounds=(bound,))


def _theorem(users: int, epsilon: Fraction) -> Judgement:
    found = tkms_bits(users, epsilon, _DELTA)
    return _of_bits(
        statement="Theorem C.1 (Algorithm 3)",
        parameters=f"m = {users}, epsilon = {epsilon}, delta = {_DELTA}",
        quantity="delta",
        claimed=Enclosure.exactly(_DELTA),
        exact=bits_box(found).delta(epsilon),
        note=f"{found.trials} noise bits of chance {shown(found.probability)}",
    )


def _bits(epsilon: Fraction) -> Judgement:
    used = tkms_bits(1, epsilon, _DELTA).trials
    needed = fewest_bits(epsilon=epsilon, delta=_DELTA).bits
    return _of_bits(
        statement="Algorithm 3, tau",
        parameters=f"epsilon = {epsilon}, delta = {_DELTA}",
        quantity="fair noise bits needed",
        claimed=Enclosure.exactly(used),
        exact=Enclosure.exactly(needed),
        note="one bit less is certified not to be enough",
    )


def _exact_bits(epsilon: Fraction) -> Judgement:
    least = fewest_bits(epsilon=epsilon, delta=_DELTA)
    return _of_bits(
        statement="ours: the fewest fair bits",
        parameters=f"epsilon = {epsilon}, delta = {_DELTA}, {least.bits} bits",
        quantity="delta",
        claimed=Enclosure.exactly(_DELTA),
        exact=least.enough.delta(epsilon),
        note="calibrated exactly",
    )


def _comparisons(epsilon: Fraction) -> Judgement:
    # m < tau and m <= tau differ at m = tau alone.
    tau = tkms_threshold(epsilon, _DELTA)
    differing = math.floor(tau.upper) - math.ceil(tau.lower) + 1
    return _of_bits(
        statement="Algorithm 3, encoder and analyzer",
        parameters=f"epsilon = {epsilon}, delta = {_DELTA}",
        quantity="the number of m at which < and <= differ",
        claimed=Enclosure.exactly(0),
        exact=Enclosure.exactly(differing),
        note="tau is no integer, so the two comparisons with it agree",
    )


def _tail(users: int, epsilon: Fraction) -> Judgement:
    # B is binomial of mean tau/2; a deviation of t = 2 E[B], by its first mass and a geometric
    # series on it.
    def mean() -> arb:
        return 48 * ball(2 / _DELTA).log() / ball(epsilon**2)

    least = ceiling(lambda: 3 * mean())

    def first() -> arb:
        p, ways = mean() / users, arb(users + 1).lgamma() - arb(least + 1).lgamma()
        ways -= arb(users - least + 1).lgamma()
        return ways + least * p.log() + (users - least) * (1 - p).log()

    def whole() -> arb:
        p = mean() / users
        return first() - (1 - (users - least) * p / ((least + 1) * (1 - p))).log()

    return _of_bits(
        statement="Theorem C.1, its sub-Gaussian noise",
        parameters=f"m = {users}, epsilon = {epsilon}, delta = {_DELTA}, t = 2 E[B]",
        quantity="ln P(B - E[B] >= t)",
        claimed=narrow(lambda: -4 * mean() / 3, WIDTH_BITS),
        exact=Enclosure(narrow(first, WIDTH_BITS).lower, narrow(whole, WIDTH_BITS).upper),
        note="Chernoff's exp(-t^2/(3 E[B])) holds for t <= E[B] only",
    )


def _bandit(statement: str, epsilon: Fraction, sizes: tuple[int, ...]) -> Judgement:
    deltas = [bits_box(tkms_bits(m, epsilon, _DELTA)).enclose_delta(epsilon) for m in sizes]
    return Judgement(
        paper="TKMS",
        statement=f"{statement}, by Theorem C.1",
        parameters=f"epsilon = {epsilon}, delta = {_DELTA}, m from {sizes[0]} to {sizes[-1]}",
        quantity="delta",
        claimed=Enclosure.exactly(_DELTA),
        exact=Enclosure(max(d.lower for d in deltas), max(d.upper for d in deltas)),
        note="every user is in one batch, so the worst batch decides",
    )
