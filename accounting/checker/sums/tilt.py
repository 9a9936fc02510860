r"""Characteristic functions on the line Re z = c, in floats: where they matter, and their values.

With the law of each round tilted by e^(cL) and centred, |E e^(iyL)| <= 1 with equality at y = 0.
Of all frequencies j eta only those matter where the product over the rounds is not yet small; the
others are skipped by |phi(y + s)| <= |phi(y)| + s sd, and between the echoes of an almost regular
spacing at once.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from accounting.checker.clock import tick
from accounting.checker.laws.density import Density
from accounting.checker.laws.law import Unchecked
from accounting.checker.laws.losses import Losses
from accounting.checker.laws.masses import Number

__all__ = ["Listed", "Point", "Tilted", "best_tilt", "echoes", "scan", "tilted"]

Listed: TypeAlias = Sequence[tuple[Losses | Density, int]]
"""What rounds lose: the losses of each law, or its density, and how many rounds it has."""

_LEAST: Final = 1e-300
_MOST_WORK: Final = 40_000_000
_STEP: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilted:
    r"""One law of ``count`` rounds under the tilt: normalised weights, centred losses.

    Of a density, which is then ``law``, they stand for it up to an error of ``off`` a round.
    """

    weights: tuple[float, ...]
    losses: tuple[float, ...]
    count: int
    log_moment: float
    mean: float
    deviation: float
    law: Density | None = None
    off: float = 0.0

    def phi(self, y: float) -> complex:
        r"""E e^(iyL), centred, under the tilt."""
        return sum(map(cmath.rect, self.weights, [y * loss for loss in self.losses]))


def tilted(listed: Listed, c: float, reach: float = 0.0) -> list[Tilted]:
    r"""Every law of the list under the tilt e^(cL), the most telling first.

    Sums that stand for densities do so for frequencies up to ``reach``.
    """
    found = []
    for one, count in listed:
        tick()
        off = 0.0
        if isinstance(one, Density):
            nodes = one.nodes(c, reach)
            powers, values, off = nodes.powers, nodes.losses, nodes.off
        else:
            values = [float(loss) for loss in one.losses]
            powers = [_log(p) + c * loss for p, loss in zip(one.here, values, strict=True)]
        most = max(powers)
        raw = [math.exp(power - most) for power in powers]
        total = math.fsum(raw)
        mean = math.fsum(map(float.__mul__, raw, values)) / total
        spread = math.fsum(w * (x - mean) ** 2 for w, x in zip(raw, values, strict=True)) / total
        kept = [(w / total, x - mean) for w, x in zip(raw, values, strict=True) if w > 0]
        found.append(
            Tilted(
                weights=tuple(w for w, _ in kept),
                losses=tuple(x for _, x in kept),
                count=count,
                log_moment=most + math.log(total),
                mean=mean,
                deviation=math.sqrt(spread),
                law=one if isinstance(one, Density) else None,
                off=off,
            )
        )
    return sorted(found, key=lambda one: -one.count * one.deviation**2)


def _log(mass: Number) -> float:
    # Of a number that may be far below every float.
    mantissa, exponent = mass.man_exp
    size = int(mantissa).bit_length()
    return math.log(int(mantissa) / (1 << size)) + (int(exponent) + size) * math.log(2)


def best_tilt(listed: Listed, epsilon: float) -> float:
    r"""Near the saddle of log M(c) - c epsilon - log c(c+1), which is convex in log c.

    Any c > 0 gives the same integral; this one makes its terms as large as their sum.
    """

    def slope(c: float) -> float:
        mean = sum(one.count * one.mean for one in tilted(listed, c))
        return mean - epsilon - 1 / c - 1 / (1 + c)

    low, high = 1e-3, 1.0
    while slope(high) < 0:
        low, high = high, high * 4
        if high > 1e6:
            raise Unchecked("no tilt brings the total loss to epsilon")
    while low > 1e-9 and slope(low) > 0:
        low, high = low / 16, low
    for _ in range(9):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return math.sqrt(low * high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spacing:
    # Neighbouring atoms in pairs: |phi| <= 1 - bulk + bulk sqrt(1 - evenness sin^2(y gap/2)).
    least: float
    most: float
    bulk: float
    evenness: float
    count: int

    @classmethod
    def of(cls, one: Tilted, share: float) -> _Spacing | None:
        atoms = sorted(zip(one.losses, one.weights, strict=True))
        left, low, high = share, 0, len(atoms)
        while left > 0 and high - low > 2:
            at = low if atoms[low][1] < atoms[high - 1][1] else high - 1
            left -= atoms[at][1]
            low, high = (low + 1, high) if at == low else (low, high - 1)
        pairs = [*pairwise(atoms[low:high])][::2]
        gaps = [right[0] - left[0] for left, right in pairs]
        if len(pairs) < 20 or not 0 < max(gaps) < 1.5 * min(gaps):
            return None
        return cls(
            least=min(gaps),
            most=max(gaps),
            bulk=math.fsum(left[1] + right[1] for left, right in pairs),
            evenness=min(4 * a[1] * b[1] / (a[1] + b[1]) ** 2 for a, b in pairs),
            count=one.count,
        )

    def free_until(self, y: float, log_small: float) -> float:
        # The end of the range around y in which |phi|^count is certainly below e^log_small.
        root = (math.exp(log_small / self.count) - (1 - self.bulk)) / self.bulk
        if root <= 0:
            return y
        square = (1 - root * root) / self.evenness
        if square >= 1:
            return y
        angle = 2 * math.asin(math.sqrt(square))
        turns = math.floor(y * self.least / (2 * math.pi))
        if y * self.least < 2 * math.pi * turns + angle:
            return y
        return max((2 * math.pi * (turns + 1) - angle) / self.most, y)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    r"""What is known at y = j eta: the product of phi(y)^count, or 0 where it is small."""

    j: int
    product: complex
    matters: bool


def echoes(laws: list[Tilted]) -> float:
    r"""Where the first echoes of every law are behind: thrice 2 pi over its usual spacing."""
    return 3 * max(2 * math.pi / _usual_gap(one) for one in laws)


def _usual_gap(one: Tilted) -> float:
    atoms, left = sorted(zip(one.losses, one.weights, strict=True)), 0.5
    gaps = [(b[0] - a[0], (a[1] + b[1]) / 2) for a, b in pairwise(atoms)]
    for gap, weight in sorted(gaps):
        left -= weight
        if left <= 0:
            return max(gap, 1e-9)
    return max(max((gap for gap, _ in gaps), default=1.0), 1e-9)


def scan(laws: list[Tilted], eta: float, last: int, small: float, weight: float) -> Iterator[Point]:
    r"""The points j in 0..last that matter, in order, and some of those that do not.

    j matters where |product| min(1, ``weight``/(j eta)^2) is at least ``small``.

    Raises :class:`Unchecked` after 4 10^7 values of e^(iyL), some seconds of work; a frequency
    costs 40 of them beside its own.
    """
    spacings = [
        spacing
        for one in laws
        if len(one.weights) > 100
        and (spacing := _Spacing.of(one, min(-math.expm1(math.log(small) / one.count) / 8, 1e-3)))
    ]
    j, work = 0, 0
    while j <= last:
        y = j * eta
        needed = math.log(small) - min(0.0, math.log(weight / y**2) if y else 0.0)
        if needed >= 0:
            return
        free = max((one.free_until(y, needed) for one in spacings), default=y)
        if free > y + eta:
            yield Point(j=j, product=0j, matters=False)
            j = max(j + 1, math.floor(free / eta))
            continue
        size, product, seen = 0.0, 1 + 0j, []
        tick()
        for one in laws:
            value = one.phi(y)
            work += _STEP + len(one.weights)
            size += one.count * math.log(max(abs(value), _LEAST))
            seen.append((one.count, abs(value), one.deviation))
            if size < needed:
                break
            product *= value**one.count
        if work > _MOST_WORK:
            raise Unchecked("the loss is too uneven: too many frequencies matter")
        matters = size >= needed
        yield Point(j=j, product=product if matters else 0j, matters=matters)
        j += 1 if matters else max(1, math.floor(_gap(seen, needed) / eta))


def _gap(seen: list[tuple[int, float, float]], needed: float) -> float:
    # How far no product of the sizes seen, each rising by its deviation, reaches e^needed.
    if len(seen) == 1:
        ((count, size, deviation),) = seen
        return (math.exp(needed / count) - size) / deviation
    low, high = 0.0, 2 / max(deviation for _, _, deviation in seen)
    for _ in range(16):
        middle = (low + high) / 2
        sizes = (count * math.log(min(size + middle * d, 1.0)) for count, size, d in seen)
        low, high = (middle, high) if sum(sizes) < needed else (low, middle)
    return low
