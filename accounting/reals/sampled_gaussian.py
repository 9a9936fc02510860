r"""One round of Gaussian noise on a random sample: its moment as a trapezoid sum of few nodes.

Under a shift of length D, in any number of coordinates, noise of deviation sigma is by rotation
one number x with Q = Normal(0, v), P = Normal(1, v), v = sigma^2/D^2, and u = (2x - 1)/2v. The
integrand p(x) B(u)^w is analytic for |Im x| < pi v: the trapezoid sum is exponentially close.
Proofs: docs/proofs/real_noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from flint import acb, arb

from accounting.fourier.discs import Floats, upward
from accounting.fourier.smooth_factor import FadingNodes, Nodes
from accounting.reals.mixture import MOST_ANGLE, Ball, SampledLaw, moments
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.enclosure import ball
from dpcore.numbers.floating import exp_neg

__all__ = ["CELLS", "SampledGaussian", "short"]

_POINTS: Final = 512
_COARSE: Final = 192
_ANGLES: Final = 40
_FINER: Final = 0.75
_LESS: Final = 0.7
CELLS: Final = 128
"""Into how many cells a strip is cut to be bounded."""

_FEW_CELLS: Final = 40
_SPARE: Final = 9.0
_STRIPS: Final = 5
_MOST_LIFT: Final = 4.0
_FAR_NATS: Final = 60.0
_MOST_FALL: Final = 690.0
_READ: Final = 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussian(SampledLaw):
    r"""The loss of one round, v = ``variance``, in one direction.

    >>> from accounting.reals.mixture import Direction
    >>> direction = Direction(rate=Fraction(1, 100), present=True)
    >>> law = SampledGaussian(variance=Fraction(1), direction=direction)
    >>> round(law.cumulants(1.0)[0], 8)  # M(1) = 1 + gamma^2 (e - 1)
    0.00017181
    """

    variance: Fraction

    @property
    def highest(self) -> None:
        r"""u has no end."""

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        r"""By the trapezoid rule, in floats."""
        r = tilt + 1 if self.direction.present else -tilt
        low, high = self._range(r, 40.0)
        x = np.linspace(low, high, _POINTS)
        logs = self._logs(x)
        exponents = self._exponents(x, logs, r)
        value, mean, spread = moments(exponents, self._losses(x, logs))
        return value + math.log((high - low) / (_POINTS - 1)), mean, spread

    def nodes(self, tilt: Fraction, reach: float, nats: float, most: int) -> Nodes:
        r"""h p(x) B^r at x = x_0 + jh, with what the sum leaves out and its aliases."""
        c, v = ball(tilt), ball(self.variance)
        r = self.direction.power(c)
        power = float(r)
        log_scale = self.cumulants(float(tilt))[0]
        angle = self._angle(power, reach, nats, log_scale)
        beside = self.beside(r, angle, reach, nats)
        # 2 N/(e^(2 pi a/h) - 1), a = angle v, for what the integrand has beside the line.
        need = nats + max(float(beside.log()) - log_scale, 0.0) + 1
        step = short(math.tau * angle * float(self.variance) / need)
        low, high = self._range(power, nats)
        count = math.ceil((high - low) / step) + 1
        if count > most:
            raise PrecisionExhausted(f"a sum of {count} nodes: ask at a smaller reach")
        aliases = 2 * beside / (2 * arb.pi() * arb(angle) * v / step).expm1()
        first = arb(short(low))
        weights, losses = self._terms(first, arb(step), count, r)
        edges = weights[-1], weights[0]
        rest = aliases + self._beyond(edges, first, arb(step), count, r, arb(0))
        return Nodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def fading(self, tilt: Fraction, nats: float, most: int) -> FadingNodes | None:
        r"""The same sum along Im x = a/2, or -a/2 without the unit, from the strip up to a."""
        c, v = ball(tilt), ball(self.variance)
        r = self.direction.power(c)
        power, log_scale = float(r), self.cumulants(float(tilt))[0]
        angle = self._angle(power, 0.0, nats, log_scale)
        # For y >= 0 the integrand is at most what it is for y = 0, on all of the strip.
        beside = self.beside(r, angle, 0.0, nats) + self.beside(r, 0.0, 0.0, nats)
        need = nats + max(float(beside.log()) - log_scale, 0.0) + 1
        half = short(angle / 2)
        step = short(math.tau * half * float(self.variance) / need)
        low, high = self._beside_range(power, half, 0.0, nats)
        count = math.ceil((high - low) / step) + 1
        if count > most:
            return None
        aliases = beside / (2 * arb.pi() * arb(half) * v / step).expm1()
        first, turn = arb(short(low)), arb(half)
        weights, losses = self._terms(
            first, arb(step), count, r, turn if self.direction.present else -turn
        )
        edges = abs(weights[-1]), abs(weights[0])
        rest = aliases + self._beyond(edges, first, arb(step), count, r, turn)
        return FadingNodes(weights=tuple(weights), losses=tuple(losses), rest=rest.upper())

    def far(self, tilt: Fraction, frequencies: Floats) -> Floats:
        r"""Along Im x = a the integrand falls like e^(-y arg B): the best of some angles a/v."""
        c, v = ball(tilt), float(self.variance)
        r = self.direction.power(c)
        scale = arb(self.cumulants(float(tilt))[0]).exp()
        most = min(MOST_ANGLE / self.direction.degree, _MOST_LIFT / math.sqrt(v))
        found = np.full(len(frequencies), np.inf)
        for j in range(_STRIPS):
            angle = short(most * 2.0**-j)
            cells = self.cells(r, arb(angle), *self.places(r))
            height = self.height(arb(angle)) / scale
            sizes = np.array([upward(height * size.exp()) for size, _, _ in cells])
            turns = np.array([max(float(turn.lower()), 0.0) * (1 - _READ) for _, turn, _ in cells])
            falls = np.minimum(np.outer(frequencies, turns), _MOST_FALL)
            sums = (exp_neg(falls) * (1 + _READ)) @ sizes
            found = np.minimum(found, sums * (1 + _READ))
        return found

    # -- floats, on which only speed rests ---------------------------------------------------------

    def _logs(self, x: Floats) -> Floats:
        return self.direction.logs((2 * x - 1) / (2 * float(self.variance)))

    def _exponents(self, x: Floats, logs: Floats, r: float) -> Floats:
        v = float(self.variance)
        found: Floats = r * logs - x * x / (2 * v) - 0.5 * math.log(math.tau * v)
        return found

    def _losses(self, x: Floats, logs: Floats) -> Floats:
        del x
        return logs if self.direction.present else -logs

    def _exponents_beside(self, x: Floats, r: float, angle: float, reach: float) -> Floats:
        logs, turns = self.direction.logs_beside((2 * x - 1) / (2 * float(self.variance)), angle)
        found: Floats = self._exponents(x, logs, r) + reach * turns
        return found

    def _range(self, r: float, nats: float) -> tuple[float, float]:
        # Where p B^r is above e^-nats of its top, and beyond the points where its tails fall.
        sigma = math.sqrt(self.variance)
        width = math.sqrt(2 * (nats + _SPARE))
        most = float(self._steepest(arb(r)))
        low, high = self._lowest(r, nats), most + width * sigma
        for _ in range(2):
            x = np.linspace(low, high, _POINTS)
            exponents = self._exponents(x, self._logs(x), r)
            kept = x[exponents > exponents.max() - nats - _SPARE]
            gap = float(x[1] - x[0])
            low, high = float(kept[0]) - gap, float(kept[-1]) + gap
        return self._falling(low, r), max(high, most + sigma)

    def _lowest(self, r: float, nats: float) -> float:
        # p B^r is below e^-nats of its top to the left: B >= 1 - gamma, and at x = 1/2 it is 1.
        least = math.log1p(-min(float(self.direction.rate), 0.5))
        excess = 0.0 if r > 0 else r * self.direction.degree * least
        return -math.sqrt(2 * float(self.variance) * (nats + _SPARE + min(excess, 600.0) + 1))

    def _falling(self, low: float, r: float) -> float:
        # A point from which p B^r falls to the left: x < r s(u), with room to spare.
        sigma = math.sqrt(self.variance)
        lowest = r * self.direction.degree
        while r < 0 and low > lowest and low > self._pull(low, r) - sigma:
            low -= sigma
        return min(low, -sigma)

    def _pull(self, x: float, r: float) -> float:
        # r s(u).
        return r * self.direction.share((2 * x - 1) / (2 * float(self.variance)))

    def _angle(self, r: float, reach: float, nats: float, log_scale: float) -> float:
        # The angle a/v of the strip that needs the fewest nodes.
        v, angle = float(self.variance), MOST_ANGLE / self.direction.degree
        best, found = 0.0, angle
        for _ in range(_ANGLES):
            low, high = self._beside_range(r, angle, reach, nats)
            x = np.linspace(low, high, _COARSE)
            exponents = self._exponents_beside(x, r, angle, reach) + angle * angle * v / 2
            top = float(exponents.max())
            size = top + math.log(float(np.exp(exponents - top).sum()) * (high - low) / _COARSE)
            step = angle / (nats + max(size - log_scale, 0.0) + 1)
            if step > best:
                best, found = step, angle
            elif step < best * _LESS:
                break
            angle *= _FINER
        return short(found)

    def _beside_range(
        self, r: float, angle: float, reach: float, nats: float
    ) -> tuple[float, float]:
        sigma = math.sqrt(self.variance)
        far = math.sqrt(2 * (reach * angle + nats + _SPARE))
        most = float(self._steepest(arb(r)))
        return self._falling(self._lowest(r, nats), r), most + sigma * far

    # -- balls -----------------------------------------------------------------------------------

    def _steepest(self, r: arb) -> arb:
        # The most that v times the slope of log |B|^r comes to.
        return self.direction.degree * r.max(arb(0))

    def _terms(
        self, first: arb, step: arb, count: int, r: arb, turn: arb | None = None
    ) -> tuple[list[Any], list[Any]]:
        # h p B^r and the loss at first + jh + i turn v: balls that are real where turn is None.
        v = ball(self.variance)
        growth, grown = ((2 * first - 1) / (2 * v)).exp(), (step / v).exp()
        height = (step / (2 * arb.pi() * v).sqrt()).log()
        half = -1 / (2 * v)
        spin: Any = arb(1)
        swing: Any = arb(0)
        if turn is not None:
            spin, swing = acb(0, turn).exp(), acb(0, -turn)
            height += turn * turn * v / 2
        weights, losses, x = [], [], first
        for _ in range(count):
            term, loss = self._term(growth * spin, r)
            weights.append((half * x * x + x * swing + term + height).exp())
            losses.append(loss)
            x, growth = x + step, growth * grown
        return weights, losses

    def _beyond(
        self, edges: tuple[arb, arb], first: arb, step: arb, count: int, r: arb, angle: arb
    ) -> arb:
        # The terms fall by these ratios at least: -(x - r s)/v is the slope of their logarithm.
        v, last = ball(self.variance), first + (count - 1) * step
        share = self.direction.beside(((2 * first - 1) / (2 * v)).exp(), angle)[2]
        right = (-(last - self._steepest(r)) * step / v).exp()
        left = ((first - r.min(arb(0)) * share) * step / v).exp()
        if not (right < 1 and left < 1):
            raise PrecisionExhausted("the nodes do not reach the tails")
        return edges[0] * right / (1 - right) + edges[1] * left / (1 - left)

    def _term(self, growth: Ball, r: arb) -> tuple[Ball, Ball]:
        # r log B and the loss, from e^u.
        log = self.direction.mixed(growth).log()
        return r * log, self.direction.signed(log)

    def beside(self, r: arb, angle: float, reach: float, nats: float) -> arb:
        # int |p(x+ia) B^(r+iy)| dx for |y| <= reach: |B^(iy)| <= e^(reach arg B).
        turn, far = arb(angle), arb(reach)
        low, high = self._beside_range(float(r), angle, reach, nats)
        # Fewer cells are wider ones, whose angles differ more: that counts where |y| is large.
        count = CELLS if reach else _FEW_CELLS
        cells = self.cells(r, turn, arb(short(low)), arb(short((high - low) / count)), count)
        total = sum(((size + far * high).exp() for size, _, high in cells), arb(0))
        return (total * self.height(turn)).upper()

    def places(self, r: arb) -> tuple[arb, arb]:
        # Where the first of the cells begins that bound the moment far up, and their width.
        low, high = self._beside_range(float(r), 0.0, 0.0, _FAR_NATS)
        return arb(short(low)), arb(short((high - low) / CELLS))

    def height(self, angle: arb) -> arb:
        # |p(x+ia)| = e^(-x^2/2v) times this, a = angle v.
        v = ball(self.variance)
        return (angle * angle * v / 2).exp() / (2 * arb.pi() * v).sqrt()

    def cells(
        self, r: arb, angle: arb, first: arb, step: arb, count: int = CELLS
    ) -> list[tuple[arb, arb, arb]]:
        # (log of a bound of int e^(-x^2/2v) |B|^r dx, least and largest arg B) at u + i angle, for
        # each cell: e^(-x^2/2v) is largest at the end next to 0; |B| and arg B rise.
        v, zero, direction, up = ball(self.variance), arb(0), self.direction, r > 0
        half, width = -1 / (2 * v), step.log()
        growth, grown = ((2 * first - 1) / (2 * v)).exp(), (step / v).exp()
        at, (log, turn, share) = first, direction.beside(growth, angle)
        # The tails fall at least like exponentials, with these slopes at their ends.
        rise = r.min(zero) * share - at
        found = [(half * at * at + r * log + (v / rise).log(), zero, turn)]
        for _ in range(count):
            end, growth = at + step, growth * grown
            log_end, turn_end, _ = direction.beside(growth, angle)
            nearest = end if end < 0 else at if at > 0 else zero
            most = r * (log_end if up else log)
            found.append((half * nearest * nearest + most + width, turn, turn_end))
            at, log, turn = end, log_end, turn_end
        fall = at - self._steepest(r)
        if not (rise > 0 and fall > 0):
            raise PrecisionExhausted("the strip does not reach the tails")
        whole = direction.degree * angle
        found.append((half * at * at + r * log + (v / fall).log(), turn, whole))
        return found


def short(value: float) -> float:
    r"""About the value, of 20 bits: as a ball it is exact."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * (1 << 20)), exponent - 20)
