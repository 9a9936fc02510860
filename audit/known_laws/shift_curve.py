r"""The privacy curve between two shifts of one noise, in one direction: P is the law of p + X, Q
that of q + X.

``accounting`` gives the dominating pair for a shift of d = |p - q| in one of the two directions;
here it is converted to the requested direction. Proof: docs/proofs/exact_audits.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Final

from accounting.errors import NotDerived
from accounting.law_pairs.one_sided import OneSidedPair
from accounting.law_pairs.registry import Coordinates, pair_of
from accounting.law_pairs.skellam_and_polya import PolyaDifferenceBelowOne, RevealingPair
from accounting.pairs.enclose_curve import as_ball
from accounting.pairs.finite import FinitePair
from accounting.pairs.pair import Pair, RayPair
from accounting.privacy_curves.release_curve import PairCurve, PrivacyCurve
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.integer_search import least

_DECIDING: Final = 256
# Measured for delta with six coordinates of 20,000 trials: 0.1 s at every width down to 2^-14, 6
# times as long at 2^-16, 50 times at 2^-18.
_WIDTH: Final = Fraction(1, 1 << 14)


class NeverWorse(NotDerived):
    r"""Raised for a direction without its own curve; the other direction is at least as bad."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OneWay(PairCurve):
    r"""The privacy curve of one direction of one shift, from a single dominating pair."""

    theorem: ClassVar[str] = "the curve of the noise"

    pair: Pair
    scope: Scope = field(default=Scope())

    def products(self) -> tuple[Coordinates, ...]:
        r"""The pair alone."""
        return (((self.pair, 1),),)


@dataclass(frozen=True, slots=True)
class Box:
    r"""The curve for several coordinates of binomial noise with probability 1/2 (symmetric)."""

    law: BinomialBox

    def enclose_delta(self, epsilon: Fraction, bits: int = 64) -> Enclosure:
        r"""Enclose delta over all coordinates, with relative width about 2^-14 for all ``bits``."""
        del bits
        return self.law.enclose_delta(epsilon, _WIDTH)

    def enclose_epsilon(self, delta: Fraction, bits: int = 64) -> Enclosure:
        r"""Enclose epsilon, with relative width about 2^-14 for all ``bits``."""
        del bits
        return self.law.enclose_epsilon(delta, _WIDTH)

    def enclose_renyi(self, order: Fraction, bits: int = 64) -> Enclosure:
        r"""Return infinity: each dataset has outcomes that are impossible under the other."""
        del order, bits
        return Enclosure.infinite()


def shift_curve(noise: Noise, p: int, q: int) -> OneWay:
    r"""The curve of P = p + X against Q = q + X, for p != q."""
    pair = pair_of(noise, abs(p - q))
    if isinstance(pair, OneSidedPair):
        pair = replace(pair, mirrored=p < q)
    elif isinstance(pair, RevealingPair) and p > q:
        raise NeverWorse(f"the curve of {noise!r} at {p} against {q}", "use the opposite direction")
    return OneWay(pair=pair)


def vectors(noise: Noise, p: tuple[int, ...], q: tuple[int, ...]) -> PairCurve | Box:
    r"""The curve for different vector shifts."""
    moved = [(a, b) for a, b in zip(p, q, strict=True) if a != b]
    if len(moved) == 1:
        return shift_curve(noise, *moved[0])
    moves = tuple(abs(a - b) for a, b in moved)
    if isinstance(noise, Binomial) and noise.probability == Fraction(1, 2):
        return Box(BinomialBox(trials=noise.trials, bounds=moves))
    if not noise.symmetric:
        raise NotDerived(f"several coordinates of {noise!r}", "use symmetric noise")
    return PrivacyCurve(noise=noise, sensitivity=Sensitivity.box(moves))


@dataclass(frozen=True, slots=True)
class OutputInterval:
    r"""The outputs first..last; None means unbounded."""

    first: int | None
    last: int | None

    @property
    def words(self) -> str:
        r"""A description of the event."""
        if self.last is None:
            return f"output >= {self.first}"
        if self.first is None:
            return f"output <= {self.last}"
        if self.first == self.last:
            return f"output = {self.first}"
        return f"{self.first} <= output <= {self.last}"

    def probability(self, noise: Noise, place: int, bits: int) -> Enclosure:
        if self.last is None and self.first is not None:
            return noise.enclose_sf(self.first - 1 - place, bits)
        if self.first is None and self.last is not None:
            return noise.enclose_cdf(self.last - place, bits)
        first, last = self.first or 0, self.last or 0
        if first == last:
            return noise.enclose_pmf(first - place, bits)
        return narrow(lambda: noise.sf_ball(first - 1 - place) - noise.sf_ball(last - place), bits)


def worst_interval(noise: Noise, p: int, q: int, level: Fraction) -> OutputInterval | None:
    r"""The outputs with a loss above ``level`` (up to ties): the worst event at epsilon =
    ``level``.

    Returns None if there are no such outputs, or if they do not form an interval.
    """
    pair = shift_curve(noise, p, q).pair
    if isinstance(pair, FinitePair):
        return None  # not an interval in general
    with precision(_DECIDING):
        span = _span(pair, level)
    if span is None:
        return None
    first, last = span
    if isinstance(pair, RevealingPair):
        return OutputInterval(first + q, None if last is None else last + q)
    if p > q:
        return OutputInterval(p + first, None if last is None else p + last)
    return OutputInterval(None if last is None else p - last, p - first)


def _span(pair: Pair, level: Fraction) -> tuple[int, int | None] | None:
    # The integers of the pair at which the loss exceeds the level.
    if isinstance(pair, RayPair):
        cell = pair.ray(level)
        return None if cell is None else (cell[1], None)
    above: Callable[[int], bool] = lambda m: bool(as_ball(pair.loss(m)) > ball(level))  # noqa: E731 - a def would only be longer
    anchor = next((m for m in (0, -1) if above(m)), None)
    if anchor is None:
        return None
    first = least(lambda m: m >= anchor or above(m), anchor)
    if isinstance(pair, PolyaDifferenceBelowOne) and level <= pair.tail_loss:
        return first, None
    return first, least(lambda m: m > anchor and not above(m), anchor + 1) - 1
