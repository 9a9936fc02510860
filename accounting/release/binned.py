r"""Wide laws in bins: what composition works on where outcomes are too many to be listed.

The outcomes of a pair are cut into intervals. With P and Q of each and the losses at its ends, two
pairs with few losses are known. An interval made one outcome is post-processing: a bound from below
(:class:`MergedPair`). An interval whose mass moves to the losses at its ends is a bound from above
(:func:`spread`, which ``dots`` takes up). Intervals are halved where it matters most, and the two
bounds differ by about their number to the power -2. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from heapq import heappop, heappush
from typing import Final, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.laws.counts import PolyaPair
from accounting.laws.gaussian import GaussianPair
from accounting.laws.laplace import LaplacePair
from accounting.laws.polya import LeanDifferencePair, RichDifferencePair
from accounting.pairs.balls import as_ball
from accounting.pairs.listing import MOST_LISTED, nothing
from accounting.pairs.log_concave import ShiftedPair
from accounting.pairs.log_convex import LogConvexPair
from accounting.pairs.losses import Losses
from accounting.pairs.pair import Pair
from dpcore.numbers.enclosure import ball, precision
from dpcore.numbers.integer_search import least

__all__ = ["UNSEEN", "Bin", "MergedPair", "bins", "fineness", "is_wide", "spread"]

UNSEEN: Final = Fraction(1, 1 << 160)
"""The mass that may be left to the last interval, where losses are largest."""

_BITS: Final = 128
_MOST: Final = 2000
_MOST_SLOW: Final = 400
_SHARE: Final = 0.25
_SLIGHT: Final = 2.0**-40
_TILT: Final = 8.0
_NEED: Final = 64 * math.log(2)
_ROOM: Final = MOST_LISTED - MOST_LISTED // 4

_Ray: TypeAlias = GaussianPair | LaplacePair | ShiftedPair
_Shifted: TypeAlias = _Ray | LogConvexPair
"""Pairs on all integers m, whose mirror has the losses -L(-d-m)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    r"""A set of outcomes, its ``gap`` = P - Q and ``rest`` = Q, and the range of its losses.

    Every loss in it lies in [``low``, ``high``]; both may be infinite.
    """

    gap: arb
    rest: arb
    low: arb
    high: arb

    @property
    def mass(self) -> arb:
        r"""P of the set."""
        return (self.gap + self.rest).max(arb(0))

    def swapped(self) -> Bin:
        r"""The same set with P and Q in each other's place."""
        return Bin(gap=-self.gap, rest=self.gap + self.rest, low=-self.high, high=-self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPair:
    r"""``pair`` with each of about ``most`` bins made one outcome: it loses less than ``pair``.

    >>> from accounting.laws.skellam import SkellamPair
    >>> from dpcore.laws.skellam import Skellam
    >>> noise = Skellam(variance=10**8)
    >>> pair = SkellamPair(noise=noise, shift=100)
    >>> found = MergedPair(pair=pair, most=100).losses(Fraction(1), 40)
    >>> bool(abs(sum(found.masses, arb(0)) - 1) < 1e-12), found.hidden == 0
    (True, True)

    Raises :class:`NotDerived` as :func:`bins` does.
    """

    pair: Pair
    most: int

    def losses(self, tilt: Fraction, bits: int) -> Losses:
        r"""log(P/Q) of every bin, whatever is asked for."""
        del tilt, bits
        return _merged(self.pair, self.most)


@lru_cache(maxsize=64)
def _merged(pair: Pair, most: int) -> Losses:
    with precision(_BITS):
        atoms, hidden = _Atoms(), arb(0)
        for part in bins(pair, most):
            if part.low == arb("inf"):
                hidden += part.mass
                continue
            loss = (part.gap / part.rest).log1p()
            # What balls cannot tell apart from 0 is left out: that is a bound from below, too.
            if loss.is_finite():
                atoms.put(part.mass, loss)
        return atoms.listed(hidden)


def spread(parts: Iterable[Bin]) -> Losses:
    r"""The bins with their masses at the losses at their ends: a pair above theirs.

    Neighbours in ``parts`` that share an end share an outcome there.

    >>> whole = Bin(gap=arb(0), rest=arb(1), low=-arb(3).log(), high=arb(3).log())
    >>> [mass.str(8, radius=False) for mass in spread([whole]).masses]
    ['0.25000000', '0.75000000']
    """
    hidden, atoms = arb(0), _Atoms()
    for part in parts:
        # P - e^low Q is shared by P and Q of the upper end alone.
        excess = part.gap - part.low.expm1() * part.rest
        moved = excess * (1 + 1 / (part.high - part.low).expm1())
        if part.low == arb("inf"):
            hidden += part.mass
        elif part.low.is_finite() and part.high == arb("inf"):
            atoms.put(part.mass - excess, part.low)
            hidden += excess.max(arb(0))
        elif part.low.is_finite() and moved.rad() <= part.mass * _SLIGHT:
            atoms.put(part.mass - moved, part.low)
            atoms.put(moved, part.high)
        elif part.high.is_finite():
            atoms.put(part.mass, part.high)  # the ends are one, or the lower one is -oo
        elif part.high != arb("-inf"):
            hidden += part.mass  # nothing is known of the ends
    return atoms.listed(hidden)


class _Atoms:
    # A listing that grows; a mass at the loss that was put last joins it.
    def __init__(self) -> None:
        self.masses: list[arb] = []
        self.losses: list[arb] = []

    def put(self, mass: arb, loss: arb) -> None:
        mass = mass.max(arb(0))
        if self.losses and _same(self.losses[-1], loss):
            self.masses[-1] += mass
        else:
            self.masses.append(mass)
            self.losses.append(loss)

    def listed(self, hidden: arb) -> Losses:
        return Losses(
            masses=tuple(self.masses),
            losses=tuple(self.losses),
            hidden=hidden,
            beyond=nothing,
            largest=reduce(arb.max, self.losses, arb("-inf")),
        )


def _same(one: arb, two: arb) -> bool:
    return bool(one.mid() == two.mid() and one.rad() == two.rad())


# -- which pairs, and how fine ---------------------------------------------------------------------


def is_wide(pair: Pair) -> bool:
    r"""Whether the listing of this pair would be too long, by a guess.

    >>> from accounting.laws.skellam import SkellamPair
    >>> from dpcore.laws.skellam import Skellam
    >>> sizes = (10**6, 10**8)
    >>> [is_wide(SkellamPair(noise=Skellam(variance=v), shift=1)) for v in sizes]
    [False, True]
    """
    match pair:
        case LaplacePair(shift=shift):
            return shift > MOST_LISTED
        case GaussianPair(noise=noise):
            reach = math.sqrt(2 * _NEED * float(noise.sigma_squared))
            return 2 * reach + _TILT * _step(pair) > _ROOM
        case ShiftedPair() | RichDifferencePair() | LeanDifferencePair():
            with precision(_BITS):
                low, high = pair.ends(_TILT, _NEED)
            return high - low > _ROOM
    return False


def fineness(pair: Pair) -> int:
    r"""How many bins a pair is worth: fewer where each costs more.

    A pair and its mirror share theirs. A mass of Polya noise takes some ten times as long.
    """
    if isinstance(pair, (PolyaPair, RichDifferencePair, LogConvexPair)):
        return _MOST_SLOW
    return _MOST if pair.mirror() is pair else _MOST // 2


# -- bins ------------------------------------------------------------------------------------------


def bins(pair: Pair, most: int, unseen: Fraction = UNSEEN) -> tuple[Bin, ...]:
    r"""All outcomes of ``pair`` in about ``most`` bins.

    Outcomes of losses above 0 are cut in ``pair``, those below 0 in its mirror, which loses there.

    Raises :class:`NotDerived` for a pair of which it is not known where the loss rises.
    """
    if not isinstance(pair, _Shifted):
        raise NotDerived(f"bins of {pair!r}", "compose its guarantee instead")
    mirror = pair.mirror()
    assert isinstance(mirror, _Shifted)  # noqa: S101 - of the class of the pair
    first, right = _positive(pair, most // 2, unseen)
    last, left = _positive(mirror, most // 2, unseen)
    with precision(_BITS):
        middle = _between(pair, first, last, (left, right))
        return *(part.swapped() for part in reversed(left)), *middle, *right


def _between(
    pair: _Shifted, first: int, last: int, sides: tuple[Sequence[Bin], Sequence[Bin]]
) -> Iterator[Bin]:
    # The outcomes m with m < first that are not those of the mirror, m <= -d - last.
    left, right = sides
    count = first + _step(pair) + last - 1
    if count == 0:
        return
    gap = sum((part.gap for part in left), arb(0)) - sum((part.gap for part in right), arb(0))
    rest = 1 - sum((part.gap + part.rest for part in left), arb(0))
    rest -= sum((part.rest for part in right), arb(0))
    if count == 1:
        low = high = as_ball(pair.loss(first - 1))
    else:
        low, high = -as_ball(pair.mirror().loss(last)), as_ball(pair.loss(first))
    yield Bin(gap=gap, rest=rest, low=low, high=high)


def _step(pair: _Shifted) -> int:
    return pair.shift[0][0] if isinstance(pair, GaussianPair) else pair.shift


@lru_cache(maxsize=64)
def _positive(pair: _Shifted, most: int, unseen: Fraction) -> tuple[int, tuple[Bin, ...]]:
    # A place from where on every loss is positive, and the bins from there on.
    with precision(_BITS):
        if isinstance(pair, LogConvexPair):
            return _humped(pair, most, unseen)
        return _rising(pair, most, unseen)


def _rising(pair: _Ray, most: int, unseen: Fraction) -> tuple[int, tuple[Bin, ...]]:
    level, cell = ball(unseen), pair.ray(Fraction(0))
    if cell is None:
        raise NotDerived(f"bins of {pair!r}", "no loss is positive")
    first = cell[1]

    def loss(m: int) -> arb:
        return as_ball(pair.loss(m))

    def ends(m: int) -> bool:
        return loss(m) == arb("inf") or bool(sum(pair.tails(m), arb(0)) <= level)

    stop = least(lambda m: m >= first and ends(m), first)
    side = _Side(pair.tails, loss)
    found, (gap, rest, low) = side.cut([(first, stop)], most), side.place(stop)
    high = low if low == arb("inf") else _most(pair)
    return first, (*(part for _, part in found), Bin(gap=gap, rest=rest, low=low, high=high))


def _most(pair: _Ray) -> arb:
    # What no loss exceeds.
    try:
        upper = pair.largest_loss().upper
    except NotDerived:
        return arb("inf")
    return ball(upper) if isinstance(upper, Fraction) else arb("inf")


def _humped(pair: LogConvexPair, most: int, unseen: Fraction) -> tuple[int, tuple[Bin, ...]]:
    level, first = ball(unseen), -pair.shift // 2 + 1

    def tails(m: int) -> tuple[arb, arb]:
        rest = pair.noise.sf_ball(m + pair.shift - 1)
        return pair.noise.sf_ball(m - 1) - rest, rest

    stop = least(lambda m: m > 0 and bool(sum(tails(m), arb(0)) <= level), 1)
    side = _Side(tails, pair.loss)
    found, (gap, rest, high) = side.cut([(first, 0), (0, stop)], most), side.place(stop)
    rising = (part for m, part in found if m < 0)
    falling = (part for m, part in reversed(found) if m >= 0)
    last = Bin(gap=gap, rest=rest, low=ball(pair.tail_loss), high=high)
    return first, (*rising, last, *falling)


_Place: TypeAlias = tuple[arb, arb, arb]
"""(A - B, B, L) at one m."""


@dataclass(frozen=True, slots=True)
class _Side:
    # Stretches on each of which the loss rises or falls, cut finer and finer.
    tails: Callable[[int], tuple[arb, arb]]
    loss: Callable[[int], arb]
    places: dict[int, _Place] = field(default_factory=dict)

    def place(self, m: int) -> _Place:
        for bits in (_BITS, 2 * _BITS, 4 * _BITS):
            if m in self.places and not any(value.is_nan() for value in self.places[m]):
                break
            with precision(bits):
                self.places[m] = *self.tails(m), self.loss(m)
        return self.places[m]

    def cut(self, stretches: Iterable[tuple[int, int]], most: int) -> list[tuple[int, Bin]]:
        # (m, the bin that starts at m), in order.
        whole = [(m, stop) for m, stop in stretches if m < stop]
        stops, done = {stop for _, stop in whole}, dict[int, Bin]()
        heap: list[tuple[float, int, int]] = []
        waiting = list(whole)
        while waiting or (heap and len(done) < most):
            for m, n in waiting:
                done[m] = self.bin(m, n, at_stop=n in stops)
                if n - m > 1 and (worth := _worth(done[m])) > 0:
                    heappush(heap, (-worth, m, n))
            waiting = []
            if heap and len(done) < most:
                _, m, n = heappop(heap)
                waiting = [(m, (m + n) // 2), ((m + n) // 2, n)]
        return sorted(done.items())

    def bin(self, m: int, n: int, *, at_stop: bool) -> Bin:
        (gap, rest, one), (gap_after, rest_after, two) = self.place(m), self.place(n)
        if n - m == 1:
            two = one
        elif at_stop:
            _, _, two = self.place(n - 1)  # the next stretch, or an infinite loss, starts at n
        low, high = (one, two) if one <= two else (two, one)
        if not low <= high:
            low = high = one.union(two)  # whichever is larger lies in it
        return Bin(gap=gap - gap_after, rest=rest - rest_after, low=low, high=high)


def _worth(part: Bin) -> float:
    # What halving a bin gains, for rounds many and few: a proposal.
    width, mass = float(part.high - part.low), float(part.mass)
    return math.pow(mass, _SHARE) * width * width
