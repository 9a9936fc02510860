r"""A round whose two output laws are mixtures of shifts of one density, divided into cells.

P = sum_j p_j N(. - j) and Q = sum_j q_j N(. - j), for the noise density N, integer shifts j and
probabilities p_j and q_j such that dP/dQ is monotone. Full batches, Poisson samples (with a unit
added, removed or replaced) and groups have this form. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Final, TypeAlias

import numpy as np
from flint import arb, ctx

from accounting.pairs.enclose_curve import largest, moved
from accounting.pld.discretise_round import Approximate, Cells, LossTable, Ratios, Sketch
from accounting.pld.finite_pld import Floats
from accounting.pld.noise_density import FLOOR, MOST_EXPONENT, Density, NormalDensity
from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import EXP_NEG_ERROR, exp_neg
from dpcore.numbers.enclosure import Enclosure, ball, narrow

_UNIT: Final = 2.0**-53
_UP: Final = 1 + 2.0**-49
_BITS: Final = 64
_POINTS: Final = 3001
_MOST_LOSS: Final = 680.0
_MOST_CELLS: Final = 1 << 18
_SECANTS: Final = 4
_HALVINGS: Final = 60
_FAR_OUT: Final = 1e12
_NARROW: Final = 2.0**-20
_LEAST_WEIGHT: Final = 2.0**-960


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPair(LossTable):
    r"""The pair (P, Q) of two mixtures of shifts of ``density``, for which dP/dQ is monotone.

    ``p`` and ``q`` list the pairs (weight, shift) of the two mixtures. If ``spare`` > 0 and the
    density has no kink, the outputs of the largest losses, of total P-mass about ``spare``, form
    one cell whose loss counts as infinite.

    >>> from accounting.pld.noise_density import NormalDensity
    >>> pair = RealPair.sampled(NormalDensity(Fraction(1)), Fraction(1, 100))
    >>> pair.p
    ((Fraction(99, 100), 0), (Fraction(1, 100), 1))
    """

    density: Density
    p: tuple[tuple[Fraction, int], ...]
    q: tuple[tuple[Fraction, int], ...]
    spare: float = 0.0

    @classmethod
    def sampled(cls, density: Density, rate: Fraction, shift: int = 1) -> RealPair:
        r"""The pair of Poisson sampling, whose unit moves the query by ``shift`` only under P."""
        rest = ((1 - rate, 0),) if rate < 1 else ()
        return cls(density=density, p=(*rest, (rate, shift)), q=((Fraction(1), 0),))

    @classmethod
    def moved(cls, density: Density, weights: tuple[Fraction, ...]) -> RealPair:
        r"""The pair of a query that moves under P only, by j with probability ``weights[j]``."""
        kept = tuple((weight, j) for j, weight in enumerate(weights) if weight)
        return cls(density=density, p=kept, q=((Fraction(1), 0),))

    @classmethod
    def replaced(cls, density: Density, rate: Fraction) -> RealPair:
        r"""The pair of Poisson sampling, whose unit moves the query by 1 under P, by -1 under Q."""
        rest = ((1 - rate, 0),) if rate < 1 else ()
        return cls(density=density, p=(*rest, (rate, 1)), q=(*rest, (rate, -1)))

    def swapped(self) -> RealPair:
        r"""The pair (Q, P), with ``spare`` = 0."""
        return RealPair(density=self.density, p=self.q, q=self.p)

    @property
    def shifts(self) -> tuple[int, ...]:
        return tuple(sorted({shift for _, shift in (*self.p, *self.q)}))

    @property
    def rises(self) -> bool:
        r"""Whether dP/dQ is increasing, which holds if and only if P has the larger mean."""
        here, there = (sum(weight * j for weight, j in terms) for terms in (self.p, self.q))
        return here > there

    def largest_loss(self) -> Enclosure:
        return self._largest(_BITS)

    def _largest(self, bits: int) -> Enclosure:
        return largest(self._loss_at_end(right=right, bits=bits) for right in (False, True))

    def _loss_at_end(self, *, right: bool, bits: int = _BITS) -> Enclosure:
        (here, p), (there, q) = (self.density.leading(t, right=right) for t in (self.p, self.q))
        if here != there:
            return Enclosure.infinite() if here > there else Enclosure.exactly(0)
        return narrow(partial(_log_ratio, p, q), bits)

    @property
    def infinite_ends(self) -> int:
        return sum(self._loss_at_end(right=right).upper == math.inf for right in (False, True))

    def _hidden_at(self, *, right: bool) -> bool:
        # Whether the loss of a tail counts as infinite: it is unbounded, or of mass `spare`.
        end = self._loss_at_end(right=right).upper
        if end == math.inf or self.spare == 0 or self.density.kinks:
            return end == math.inf
        return self.rises is right

    def cut(self, spare: float) -> RealPair:
        return replace(self, spare=spare)

    def infinite(self, *, above: bool) -> float:
        return _infinite(self) if above else 0.0

    def tail_moment(self, order: Fraction, edges: Floats) -> arb:
        # In a tail, dP/dQ grows over a distance s by a factor of at most e^(k s), where k is the
        # largest difference of two shifts, divided by the variance.
        found = arb(0)
        for sign, edge in ((-1, float(edges[0])), (1, float(edges[-1]))):
            if self._loss_at_end(right=sign > 0).upper < math.inf:
                continue
            assert isinstance(self.density, NormalDensity)  # noqa: S101  # Laplace losses are bounded
            x, excess = arb(edge), ball(order - 1)
            ratio = self._excess(x, arb(1)).exp()
            steepest = (self.shifts[-1] - self.shifts[0]) / ball(self.density.variance) * excess
            for weight, j in self.p:
                tail = self.density.grown_tail(sign * (x - j), steepest)
                found += ratio**excess * ball(weight) * tail
        return found

    def least_moment(self, order: Fraction) -> arb:
        if len(self.q) > 1 or type(self.density) is not NormalDensity:
            return arb(0)
        (_, there), v, found = self.q[0], ball(self.density.variance), arb(0)
        for weight, j in self.p:
            growth = ball((j - there) ** 2 * order * (order - 1)) / (2 * v)
            found = found.max(ball(weight) ** ball(order) * growth.exp())
        return found

    def curve(self, epsilon: arb) -> arb:
        r"""The delta of one round at ``epsilon``, in ball arithmetic.

        It is P(S) - e^epsilon Q(S) for the set S of outputs with a loss above epsilon. This
        difference is largest for that S, so an error h in the position of the boundary of S changes
        delta only by the order of h^2.
        """
        growth, end = epsilon.exp(), self._largest(ctx.prec)
        top = arb("inf")
        if end.upper < math.inf:
            top = ball(Fraction(end.lower)).union(ball(Fraction(end.upper)))
        if not epsilon < top:
            # delta is at most 1 - e^(epsilon - L), where L is the largest loss.
            return arb(0).union((-(epsilon - top).expm1()).max(arb(0)))
        sign = 1 if self.rises else -1
        x = self._output(epsilon, growth, sign)
        found = arb(0).union(arb(1)) if x is None else self._beyond(x, growth, sign).max(arb(0))
        # delta is at most sum_j (p_j - e^epsilon q_j)+, for any shifts.
        weights = self._differences(growth).values()
        most = sum((each.max(arb(0)) for each in weights), arb(0)).upper()
        return found if found.upper() <= most else found.lower().union(most)

    def _beyond(self, x: arb, growth: arb, sign: int) -> arb:
        # (P - growth Q) of the outputs above x, or below x if the ratio decreases.
        weights = self._differences(growth).items()
        tails = (w * _falling(self.density.tail, sign * (x - j)) for j, w in weights)
        return sum(tails, arb(0))

    def _differences(self, growth: arb) -> dict[int, arb]:
        # The weight of each shift in P - growth Q.
        weights: dict[int, arb] = {}
        for weight, j in self.p:
            weights[j] = weights.get(j, arb(0)) + ball(weight)
        for weight, j in self.q:
            weights[j] = weights.get(j, arb(0)) - growth * ball(weight)
        return weights

    def _output(self, epsilon: arb, growth: arb, sign: int) -> arb | None:
        # An interval that contains the output with this loss; None if more precision is needed.
        excess = partial(self._excess, growth=growth)
        x, before = self._guess(float(epsilon))
        value, last = excess(x), excess(before)
        for _ in range(_SECANTS):
            nearer = (x - value * (x - before) / (value - last)).mid()
            if not nearer.is_finite():
                break
            x, before, last = nearer, x, value
            value = excess(x)
        width = (abs(x) + 1).mid() * arb(2) ** (12 - ctx.prec)
        for _ in range(ctx.prec):
            if sign * excess(x - width) < 0 < sign * excess(x + width):
                low, high = (x - width).mid(), (x + width).mid()
                if width > _NARROW:
                    # The loss is almost constant between two steps: move the ends to the steps.
                    low = moved(low, x, lambda at: sign * excess(at) < 0, _HALVINGS)
                    high = moved(high, x, lambda at: sign * excess(at) > 0, _HALVINGS)
                return low.union(high)
            width *= 2
        return None

    def _guess(self, epsilon: float) -> tuple[arb, arb]:
        # Two points close to that output, in floats.
        low, high = float(self.shifts[0]), float(self.shifts[-1])
        rises, step, about = self.rises, 1.0, self._loss_alone()
        while not self.density.kinks and step < _FAR_OUT:
            inside = about(low) < epsilon < about(high)
            if inside or about(high) < epsilon < about(low):
                break
            low, high, step = low - step, high + step, 2 * step
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if (about(middle) < epsilon) == rises:
                low = middle
            else:
                high = middle
        return arb(low), arb(high if high > low else math.nextafter(low, math.inf))

    def _loss_alone(self) -> Callable[[float], float]:
        # The loss as a fast function of a single number.
        exponent = self.density.exponent_alone()
        p, q = ([(_log_weight(w), float(j)) for w, j in terms] for terms in (self.p, self.q))

        def side(terms: list[tuple[float, float]], x: float) -> float:
            return reduce(_log_of_sum, [log - exponent(x - j) for log, j in terms])

        return lambda x: side(p, x) - side(q, x)

    def _excess(self, x: arb, growth: arb) -> arb:
        # log(dP/dQ(x)/growth).
        def at(terms: tuple[tuple[Fraction, int], ...]) -> arb:
            return sum((ball(w) * self.density.grown(x, j) for w, j in terms), arb(0))

        return (at(self.p) / (growth * at(self.q))).log()

    # -- floats: they affect only speed and width --------------------------------------------------

    def loss(self, x: Floats) -> Floats:
        r"""Approximations of log dP/dQ at the outputs ``x``."""
        return _log_mixture(self.density, self.p, x) - _log_mixture(self.density, self.q, x)

    def sketch(self) -> Sketch:
        return _sketch(self)

    def allowed(self, edges: Floats) -> Floats:
        # All midpoints are exact on the grid, kinks are edges, and no cell is too long for
        # quadrature.
        shifts = np.array(self.shifts, dtype=np.float64)
        if self.density.kinks:
            edges = np.concatenate((edges, shifts))
        grid = self.density.spacing(float(np.abs(edges).max()) + 1)
        edges = _rounded(edges, grid)
        middles, halves = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
        far = np.abs(middles[:, None] - shifts) + halves[:, None]
        far = np.minimum(far, self.density.reach).max(axis=1)
        pieces = np.ceil(halves / self.density.longest(far) + 2.0**-30)
        if not pieces.sum() < _MOST_CELLS:
            raise PrecisionExhausted("the noise is too small for its shift: use more noise")
        if (pieces > 1).any():
            pieces = pieces.astype(np.int64)
            starts = np.repeat(edges[:-1], pieces)
            within = np.arange(len(starts)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            steps = np.repeat(2 * halves / pieces, pieces)
            edges = _rounded(np.append(starts + within * steps, edges[-1]), grid)
        return edges

    # -- bounds ------------------------------------------------------------------------------------

    def cells(self, edges: Floats) -> Cells:
        p, q, moved = self._mixed([self.density.masses(edges, shift) for shift in self.shifts])
        # The outputs of a cell lie between its edges, or between the integers inside them.
        inset = self.density.spacing(0.0)[0]
        outputs = edges if not inset else np.concatenate((edges - inset, edges + inset))
        ratios = self._ratios(outputs)
        for end, right in ((0, False), (-1, True)):
            if self._hidden_at(right=right):
                ratios.excess.value[end] = ratios.ratio.value[end] = np.inf
                ratios.excess.error[end] = ratios.ratio.error[end] = 0.0
        count, last = len(edges), len(outputs) + 1
        places = np.arange(1, count + 1)
        high = ratios[np.append(places, last)]
        low = ratios[np.concatenate(([0], places + (count if inset else 0)))]
        return Cells.rising(p=p, q=q, moved=moved, low=low, high=high)

    def _mixed(self, components: list[Approximate]) -> tuple[Approximate, Approximate, Approximate]:
        # P, Q and P - Q as combinations of the shifted densities, with one weight for each shift.
        here, there = ({shift: w for w, shift in terms} for terms in (self.p, self.q))
        zero = Fraction(0)
        weights = [(here.get(j, zero), there.get(j, zero)) for j in self.shifts]
        return (
            _combined([w for w, _ in weights], components),
            _combined([w for _, w in weights], components),
            _combined([w - v for w, v in weights], components),
        )

    def _ratios(self, edges: Floats) -> Ratios:
        # The ratios at both ends of the real line, and at the edges between them.
        shifts = self.shifts
        size = np.array([float(self.density.exponent(np.array([float(j)]))[0]) for j in shifts])
        steps = np.array([self.density.step(j, edges) for j in shifts])
        slip = 8 * _UNIT * (np.abs(steps) + size[:, None])
        ends = np.array(
            [[self.density.step_at(j, right=right) for right in (False, True)] for j in shifts]
        )
        finite = np.isfinite(ends)
        # At an infinite end only the fastest growing components are kept.
        for column in range(2):
            growing = np.isposinf(ends[:, column])
            if not finite[:, column].all():
                last = len(shifts) - 1 if column else 0
                lead = last if growing.any() else int(np.flatnonzero(finite[:, column])[0])
                ends[:, column] = -np.inf
                ends[lead, column] = 0.0
        slip_ends = np.where(np.isfinite(ends), 8 * _UNIT * (np.abs(ends) + size[:, None]), 0.0)
        steps = np.concatenate((ends[:, :1], steps, ends[:, 1:]), axis=1)
        slip = np.concatenate((slip_ends[:, :1], slip, slip_ends[:, 1:]), axis=1)
        below = np.minimum(steps.max(axis=0) - steps, 800.0)
        grown = exp_neg(below)
        error = grown * (slip + below * 2 * _UNIT + EXP_NEG_ERROR) + FLOOR * (below > MOST_EXPONENT)
        here, there, moved = self._mixed(
            [Approximate(*each) for each in zip(grown, error, strict=True)]
        )
        found = Ratios(moved.over(there), here.over(there))
        if np.isinf(found.ratio.value[1:-1]).any():
            raise PrecisionExhausted("a ratio of densities exceeds float64: use more noise")
        return found


Kinds: TypeAlias = tuple[tuple[Fraction, RealPair], ...]
r"""(probability, pair) of each possible round."""


def _falling(tail: Callable[[arb], arb], x: arb) -> arb:
    # For a wide interval the union of the values at both ends, as a wide ball would be useless.
    return tail(x) if x.rad() < _NARROW else tail(x.lower()).union(tail(x.upper()))


def _log_ratio(p: Callable[[], arb], q: Callable[[], arb]) -> arb:
    return (p() / q()).log()


def _rounded(edges: Floats, grid: tuple[float, float]) -> Floats:
    first, step = grid
    rounded = np.round((edges - first) / step) * step + first
    found: Floats = np.unique(rounded, return_index=True)[0]  # without an import of numpy.ma
    return found


def _combined(weights: list[Fraction], components: list[Approximate]) -> Approximate:
    # sum w x; each weight, product and sum is rounded once.
    terms = [(float(w), each) for w, each in zip(weights, components, strict=True) if w]
    value = np.zeros_like(components[0].value)
    error, size = np.zeros_like(value), np.zeros_like(value)
    for w, each in terms:
        value = value + w * each.value
        error += abs(w) * each.error
        size += np.abs(w * each.value)
    error = (error + (len(terms) + 2) * _UNIT * size) * _UP
    if any(abs(w) < _LEAST_WEIGHT for w, _ in terms):
        # A float may not represent such weights accurately; their components are at most 1.
        error += _LEAST_WEIGHT * len(weights)
    return Approximate(value, error)


def _log_weight(weight: Fraction) -> float:
    # The log of a quotient of integers: the weight may be below all floats.
    return math.log(weight.numerator) - math.log(weight.denominator)


def _log_of_sum(a: float, b: float) -> float:
    # log(e^a + e^b).
    low, high = (a, b) if a < b else (b, a)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high


def _log_mixture(density: Density, terms: tuple[tuple[Fraction, int], ...], x: Floats) -> Floats:
    logs = [_log_weight(w) - density.exponent(x - shift) for w, shift in terms]
    found: Floats = np.logaddexp.reduce(logs, axis=0)
    return found


@lru_cache(maxsize=64)
def _sketch(pair: RealPair) -> Sketch:
    density, shifts = pair.density, pair.shifts
    if density.kinks:
        low, high = float(shifts[0]), float(shifts[-1])
    else:
        low, high = shifts[0] - density.reach, shifts[-1] + density.reach
    x = np.linspace(low, high, _POINTS)
    # The outputs with losses outside the range of floats belong to the tail cell.
    x = x[np.abs(pair.loss(x)) <= _MOST_LOSS]
    if pair.spare > 0:
        x = x[_needed(pair, x)]
    x = np.linspace(x[0], x[-1], _POINTS)
    return x, pair.loss(x), _logs(pair, x)


@lru_cache(maxsize=64)
def _infinite(pair: RealPair) -> float:
    x, found = _sketch(pair)[0], arb(0)
    for sign, end in ((-1, float(x[0])), (1, float(x[-1]))):
        if pair._hidden_at(right=sign > 0):
            # The edge is within one spacing of this point.
            near = ball(Fraction(sign * end) - 2 * Fraction(pair.density.spacing(abs(end))[1]))
            found += sum((ball(w) * pair.density.tail(near - sign * j) for w, j in pair.p), arb(0))
    return float(found.upper()) * (1 + 2.0**-40) + 5e-324


def _needed(pair: RealPair, x: Floats) -> slice:
    # The points without a tail of the largest losses of P-mass at most `spare`.
    ends = []
    for sign, outward in ((-1, x), (1, x[::-1])):
        cut = bisect_right(outward, pair.spare, key=partial(_beyond, pair, sign))
        ends.append(max(cut - 1, 0) if pair._hidden_at(right=sign > 0) else 0)
    return slice(ends[0], len(x) - ends[1])


def _logs(pair: RealPair, x: Floats) -> Floats:
    # The logarithms of the P-masses at evenly spaced points; the end points include the tails.
    gap = math.log(x[1] - x[0])
    logs = _log_mixture(pair.density, pair.p, x) + math.log(float(pair.density.height())) + gap
    for sign, place in ((-1, 0), (1, -1)):
        tail = _beyond(pair, sign, float(x[place]))
        logs[place] = np.logaddexp(logs[place], math.log(max(tail, 1e-300)))
    return logs


def _beyond(pair: RealPair, sign: int, x: float) -> float:
    # The approximate P-mass of the outputs above x, or below x if `sign` is -1.
    tails = (ball(w) * pair.density.tail(ball(sign * (Fraction(x) - j))) for w, j in pair.p)
    return float(sum(tails, arb(0)))
