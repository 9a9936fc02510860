r"""What a fixed list of pairs loses in total, by the engine that fits.

L = sum of independent losses L_i, with k_i copies each. One release: its own pair. One discrete
Gaussian or one discrete Laplace law under any shifts: a lattice (``lattice``). Anything else: the
outcomes one by one if they are few, or the contour with one small Gaussian added (``line``), of
listings on the side that is asked for. A part of the mass may be lost beforehand: with
probability 1 - ``shown`` a claim (epsilon, delta) promises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias, TypeVar

from flint import arb

from accounting.errors import NotDerived
from accounting.fourier.factor import LossPart
from accounting.fourier.gaussian_factor import LEAST_VARIANCE, GaussianPart
from accounting.fourier.integral import Line
from accounting.fourier.normal_loss import NormalLoss
from accounting.fourier.real_loss import TabledLoss
from accounting.laws.gaussian import GaussianPair, GaussianProduct
from accounting.laws.laplace import LaplacePair, LaplaceProduct
from accounting.laws.polya import DisclosingPair
from accounting.loss.integer_pair import IntegerPair
from accounting.loss.table import LossTable
from accounting.pairs.enclose import enclose_delta, enclose_epsilon
from accounting.pairs.pair import Pair
from accounting.pairs.shift import Shift
from accounting.release.dominating import disclosing
from accounting.totals.enumeration import MANY_OUTCOMES, Enumeration
from dpcore.numbers.enclosure import Enclosure, End, ball, narrow

_HIDDEN_BITS: Final = 128
_MOST_EXACT: Final = 1 << 20
_FEWEST_BITS: Final = 64
_MOST_BITS: Final = 1 << 12
_WIDE: Final = 4  # an integral may end a little wider than asked: that is not worth naming outcomes

_Counted = TypeVar("_Counted")

Law: TypeAlias = Pair | LossPart
"""One independent part of a round: a pair of laws, or a loss that bounds one from a side."""


def loss_of(law: Law, *, above: bool) -> LossPart:
    r"""The loss of a pair as a part of a contour integral, exact or a bound from one side."""
    if not isinstance(law, Pair):
        return law
    table: LossTable = IntegerPair(pair=law)
    match law:
        case GaussianPair(noise=noise, shift=((step, 1),)) if (
            float(noise.sigma_squared) >= LEAST_VARIANCE
        ):
            return GaussianPart(variance=noise.sigma_squared, shift=step)
        case DisclosingPair():
            table = disclosing(law, above=above)
    return TabledLoss(kinds=((Fraction(1), table),), above=above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    r"""``parts``: laws with their counts >= 1. ``lost``: (delta_i, count) of claims.

    Where pairs are listed, the total bounds theirs from above, or from below if not ``above``.

    >>> part = LaplacePair(scale=Fraction(20), shift=1)
    >>> Total(parts=((part, 100),)).epsilon(Fraction(1, 10**6))
    Enclosure([2.2075327009349354, 2.2075327009349355])
    """

    parts: tuple[tuple[Law, int], ...]
    lost: tuple[tuple[Fraction, int], ...] = ()
    above: bool = True

    @classmethod
    def of(
        cls,
        parts: Iterable[tuple[Law, int]],
        lost: Iterable[tuple[Fraction, int]] = (),
        *,
        above: bool = True,
    ) -> Total:
        r"""Equal laws are counted together."""
        return cls(parts=_merged(parts), lost=_merged(lost), above=above)

    @property
    def exact(self) -> bool:
        r"""Whether no listing is used, so that both ends are those of the total itself."""
        engine = self._engine()
        if not isinstance(engine, Line):
            return True
        return all(part.above is None for part, _ in engine.parts)

    @property
    def method(self) -> str:
        r"""The engine: "direct", "lattice" or "line"."""
        match self._engine():
            case Line():
                return "line"
            case GaussianProduct() | LaplaceProduct():
                return "lattice"
        return "direct"

    def delta(self, epsilon: Fraction, relative: Fraction = Fraction(1, 10**8)) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0, to about this relative width."""
        found = self._delta_of_shown(epsilon, relative)
        if not self.lost:
            return found
        # h + (1 - h) delta', which rises in both.
        hidden = narrow(self._hidden, _HIDDEN_BITS) if self._known() else Enclosure.exactly(1)
        low, high = (
            share + (1 - share) * end
            for share, end in ((hidden.lower, found.lower), (hidden.upper, found.upper))
        )
        return Enclosure(low, min(high, 1))

    def epsilon(self, delta: Fraction, relative: Fraction = Fraction(1, 10**8)) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1], to about this relative width."""
        if delta >= 1:
            return Enclosure.exactly(0)
        if not self.lost:
            return self._epsilon_of_shown(delta, relative)
        share = self._share(delta) if self._known() else Enclosure.exactly(-1)
        if share.upper < 0:
            return Enclosure.infinite()
        # epsilon falls in the share of delta that is left.
        low = self._epsilon_of_shown(Fraction(share.upper), relative).lower
        if share.lower < 0:
            return Enclosure(low, math.inf)
        return Enclosure(low, self._epsilon_of_shown(Fraction(share.lower), relative).upper)

    def _delta_of_shown(self, epsilon: Fraction, relative: Fraction) -> Enclosure:
        match self._engine():
            case None:
                return Enclosure.exactly(0)
            case Line() as line:
                return self._named_or_integrated(
                    lambda each: each.delta(epsilon, relative), line, relative
                )
            case NormalLoss() as normal:
                return normal.delta(epsilon, _bits(relative))
            case pair:
                try:
                    return enclose_delta(pair, epsilon, _bits(relative))
                except NotDerived:
                    # A loss so far out that its size is not told: a bound is enough.
                    return self._line().delta(epsilon, relative)

    def _epsilon_of_shown(self, delta: Fraction, relative: Fraction) -> Enclosure:
        if delta == 0:
            return self.largest()
        match self._engine():
            case None:
                return Enclosure.exactly(0)
            case Line() as line:
                found = self._named_or_integrated(
                    lambda each: each.epsilon(delta, relative), line, relative
                )
                largest = self.largest().upper
                return Enclosure(min(found.lower, largest), min(found.upper, largest))
            case NormalLoss() as normal:
                return normal.epsilon(delta, _bits(relative))
            case pair:
                found = enclose_epsilon(pair, delta, _bits(relative))
                return Enclosure(found.lower, min(found.upper, self.largest().upper))

    def _named_or_integrated(
        self, ask: Callable[[Enumeration | Line], Enclosure | None], line: Line, relative: Fraction
    ) -> Enclosure:
        # Few outcomes are named at once, more of them where the integral stays wide.
        named = ask(Enumeration(parts=line.parts))
        found = ask(line) if named is None else named
        assert found is not None  # noqa: S101  # the integral always has an answer
        if found.lower == math.inf or found.upper - found.lower <= _WIDE * relative * found.upper:
            return found
        named = ask(Enumeration(parts=line.parts, most=MANY_OUTCOMES))
        return found if named is None else named

    def largest(self) -> Enclosure:
        r"""The largest total loss: the sum of the largest, infinite where one is."""
        low: End = Fraction(0)
        high: End = Fraction(0)
        for law, count in self.parts:
            found = _largest(law)
            low, high = low + count * found.lower, high + count * found.upper
        return Enclosure(low, high)

    def _known(self) -> bool:
        return all(delta < 1 for delta, _ in self.lost)

    def _hidden(self) -> arb:
        # h = 1 - prod (1 - d)^k, with no cancellation.
        return -self._log_shown().expm1()

    def _log_shown(self) -> arb:
        return sum((count * (-ball(delta)).log1p() for delta, count in self.lost), arb(0))

    def _share(self, delta: Fraction) -> Enclosure:
        # (delta - h)/(1 - h): what is left of delta. Whether that is 0 is decided exactly.
        bits = sum(count * (1 - d).denominator.bit_length() for d, count in self.lost)
        if bits <= _MOST_EXACT and 1 - delta == math.prod((1 - d) ** k for d, k in self.lost):
            return Enclosure.exactly(0)
        return narrow(lambda: -((-ball(delta)).log1p() - self._log_shown()).expm1(), _HIDDEN_BITS)

    def _engine(self) -> Pair | NormalLoss | Line | None:
        if not self.parts:
            return None
        laws = [law for law, _ in self.parts]
        if sum(count for _, count in self.parts) == 1 and isinstance(laws[0], Pair):
            return laws[0]
        if all(isinstance(law, NormalLoss) for law in laws):
            return NormalLoss(
                variance=sum(
                    (k * law.variance for law, k in self.parts if isinstance(law, NormalLoss)),
                    Fraction(0),
                )
            )
        if all(isinstance(law, (GaussianPair, GaussianProduct)) for law in laws):
            noises = {law.noise for law in laws if isinstance(law, (GaussianPair, GaussianProduct))}
            if len(noises) == 1:
                return GaussianProduct(noise=noises.pop(), shift=self._shift())
        if all(isinstance(law, (LaplacePair, LaplaceProduct)) for law in laws):
            scales = {law.scale for law in laws if isinstance(law, (LaplacePair, LaplaceProduct))}
            if len(scales) == 1:
                return LaplaceProduct(scale=scales.pop(), shift=self._shift())
        return self._line()

    def _line(self) -> Line:
        return Line(parts=tuple((loss_of(law, above=self.above), k) for law, k in self.parts))

    def _shift(self) -> Shift:
        steps: dict[int, int] = {}
        for law, count in self.parts:
            for step, times in _steps(law):
                steps[step] = steps.get(step, 0) + times * count
        return tuple(sorted(steps.items(), reverse=True))


def _merged(parts: Iterable[tuple[_Counted, int]]) -> tuple[tuple[_Counted, int], ...]:
    counts: dict[_Counted, int] = {}
    for law, count in parts:
        counts[law] = counts.get(law, 0) + count
    # In one order, whatever order they came in: a total is the same number to the last digit.
    return tuple(sorted(counts.items(), key=repr))


def _steps(law: Law) -> Shift:
    match law:
        case GaussianPair(shift=shift) | GaussianProduct(shift=shift) | LaplaceProduct(shift=shift):
            return shift
        case LaplacePair(shift=step):
            return ((step, 1),)
    raise TypeError(f"{law!r} is no lattice law")


def _largest(law: Law) -> Enclosure:
    try:
        return law.largest_loss()
    except NotDerived:
        return Enclosure(Fraction(0), math.inf)


def _bits(relative: Fraction) -> int:
    # A width of 2^-bits or less is within `relative`; pairs are asked for at least a float's.
    ratio = relative.denominator // relative.numerator
    return min(max(ratio.bit_length() + 1, _FEWEST_BITS), _MOST_BITS)
