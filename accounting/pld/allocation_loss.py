r"""The privacy loss of random allocation: an example is in one of t rounds, chosen at random.

An epoch has t rounds. P is the law of its outputs with the example, and Q the law without. The
likelihood ratio of the epoch is R = dP/dQ = (R_1 + ... + R_t)/t, where R_s is the likelihood ratio
of round s with the example in it. Under Q the R_s are independent with mean 1. Replacing the R_s by
mean-preserving spreads bounds every divergence from above, and by conditional means from below, and
both ways reduce the law of every sum of R_s to few atoms (docs/proofs/cells.md).

For Gaussian noise of variance sigma^2, an example of norm D and v = sigma^2/D^2, R_s = e^u_s with
u_s ~ Normal(-1/2v, 1/v) under Q. The Renyi divergences of order a follow from moments under Q:

    e^((a-1) D_a(P||Q)) = E[R^a],    e^((a-1) D_a(Q||P)) = E[R^(1-a)].

For an integer a > 1, E[R^a] is a coefficient of a power series. Negative powers are the integrals
E[R^-s] = (1/Gamma(s)) int mu^(s-1) E[e^(-mu R)] dmu over mu > 0. On an interval of mu the integral
is bounded, because the logarithm of E[e^(-mu R)] is convex in mu (docs/proofs/subsampling.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from flint import arb, arb_series, ctx

from accounting.pld.discretise_round import Cells, Focus, log_bound
from accounting.pld.finite_pld import Floats, Listing
from accounting.pld.noise_density import Density, upper_tail
from accounting.pld.real_cells import RealPair
from dpcore.numbers.enclosure import Enclosure, End, ball, precision

_UNIT: Final = 2.0**-53
USUAL_ATOMS: Final = 2000
"""The usual number of atoms of a sum; the bounds on epsilon then differ by about 2e-4."""

_ATOMS: Final = ((5e-4, 1300), (8.4e-5, USUAL_ATOMS), (0.0, 4000))

_EVEN: Final = 0.25
_FINE: Final = 39
"""The number of trailing bits of a float that cells ignore: 2^13 cells for each power of 2."""

_REACH: Final = 9.3
_NO_RATIO: Final = 1e-60
_LARGEST: Final = 1e23
"""Larger ratios have the weight of this ratio, whose powers are within the range of floats."""

_TILTS: Final = ((1.0, 0.25), (4.0, 0.3), (12.0, 0.2))
"""(tilt, share of the cells): small tilts for many epochs, large tilts for one epoch."""

MOST_ORDER: Final = 257
r"""The largest order at which the Renyi divergence of an epoch is computed."""

_BITS: Final = 128
_NATS: Final = 60.0
_FIRST: Final = 1e-3
_RATIO: Final = 1.03
_LAST: Final = 4.0
_MOST_CELLS: Final = 600
_STRIDE: Final = 4


@dataclass(frozen=True, slots=True)
class Side:
    r"""The direction of a bound, and the order of the two neighbouring datasets.

    The bound is an upper bound if ``above`` is true, else a lower bound. It bounds the loss of (P,
    Q) if ``present`` is true, else that of (Q, P), where P is the law of the outputs with the
    example, and Q without. With R = dP/dQ, x = e^epsilon and the mean E under Q, delta(epsilon) is
    E[(R - x)+] for (P, Q) and E[(1 - xR)+] for (Q, P). So an upper bound rounds the ratios R up for
    (P, Q) and down for (Q, P), and rounds masses up for both.
    """

    above: bool
    present: bool

    @property
    def ratio(self) -> float:
        r"""1 if the ratios R are rounded up, -1 if they are rounded down."""
        return 1.0 if self.above == self.present else -1.0

    @property
    def mass(self) -> float:
        r"""1 if masses are rounded up, -1 if they are rounded down."""
        return 1.0 if self.above else -1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Ratios:
    # The Q-masses of increasing ratios, and the P-mass of infinite ratios.
    values: Floats
    masses: Floats
    hidden: float


def atoms_for(width: float) -> int:
    r"""The number of atoms per distribution for bounds of relative ``width``, at most 4000.

    >>> atoms_for(8e-4), atoms_for(8e-5)
    (1300, 4000)
    """
    return next(atoms for least, atoms in _ATOMS if width >= least)


@lru_cache(maxsize=32)
def allocated(density: Density, rounds: int, side: Side, atoms: int = USUAL_ATOMS) -> Listing:
    r"""A discretised bound on the privacy loss of one epoch of random allocation.

    The example is in one of the ``rounds`` >= 1 rounds, chosen at random, and shifts the output of
    that round by 1. The noise has this ``density``. ``side`` states the direction of the bound and
    the order of the datasets. The law of every sum of likelihood ratios gets about ``atoms`` atoms.
    """
    pair = RealPair.moved(density, (Fraction(0), Fraction(1)))
    edges, reach = pair.edges(Focus(3.0), 4 * atoms), _REACH * density.deviation
    # Less than 1e-20 of the mass lies beyond the edges, and counts as a ratio of infinity or 0.
    cells = pair.cells(edges[(edges > -reach) & (edges < 1 + reach)])
    base = _regridded(_first(cells, side), side, atoms)
    total = base
    for bit in bin(rounds)[3:]:
        total = _regridded(_sum(total, total, side), side, atoms)
        if bit == "1":
            total = _regridded(_sum(total, base, side), side, atoms)
    ratios = total.values / rounds * (1 + side.ratio * 2 * _UNIT)
    return _listed(ratios, total.masses, base.hidden, side)


def _first(cells: Cells, side: Side) -> _Ratios:
    # One round: from above both ends of each cell, from below the conditional means.
    p, q = cells.p, cells.q
    low, high = cells.low.ratio, cells.high.ratio
    if not side.above:
        kept = (q.lower > 0) & (p.lower > 0)
        rising = p.lower[kept] / q.upper[kept]
        falling = p.upper[kept] / q.lower[kept]
        values = (rising if side.present else falling) * (1 + side.ratio * 2 * _UNIT)
        return _Ratios(values, q.lower[kept], 0.0)
    infinite = np.isinf(high.value)
    with np.errstate(invalid="ignore"):
        a, b = (r.upper if side.present else np.maximum(r.lower, 0.0) for r in (low, high))
    with np.errstate(invalid="ignore", divide="ignore"):
        if side.present:
            top = p.upper - np.maximum(low.lower, 0.0) * q.lower * (1 - 4 * _UNIT)
            top = top / np.maximum(high.lower - low.upper, 0.0) * (1 + 8 * _UNIT)
        else:
            top = p.lower - low.upper * q.upper * (1 + 4 * _UNIT)
            top = top / (high.upper - np.maximum(low.lower, 0.0)) * (1 - 8 * _UNIT)
    top = np.where(np.isnan(top), np.inf if side.present else 0.0, top)
    top = np.where(infinite, 0.0, np.clip(top, 0.0, q.upper))
    bottom = np.maximum(q.upper - top, 0.0)
    hidden = float(p.upper[infinite].sum()) * (1 + 2.0**-40)
    values = np.concatenate((a, b[~infinite]))
    masses = np.concatenate((bottom, top[~infinite])) * (1 + 4 * _UNIT)
    # Missing mass is given to the ratio with the largest effect.
    lowest = float(values.min()) if side.present else 0.0
    missing = max(1 - float(masses.sum()), 0.0) + len(masses) * 2.0**-52
    return _Ratios(np.append(values, lowest), np.append(masses, missing), hidden)


def _sum(one: _Ratios, two: _Ratios, side: Side) -> _Ratios:
    # For two equal laws each pair of different atoms counts twice.
    v, m = one.values, one.masses
    if one is two:
        rows = range(len(v))
        values = np.concatenate([v[i:] + v[i] for i in rows])
        masses = np.concatenate([np.append(m[i] * m[i], 2 * m[i] * m[i + 1 :]) for i in rows])
    else:
        values = np.add.outer(v, two.values).ravel()
        masses = np.multiply.outer(m, two.masses).ravel()
    values *= 1 + side.ratio * 2 * _UNIT
    masses *= 1 + side.mass * 2 * _UNIT
    return _Ratios(values, masses, max(one.hidden, two.hidden))


def _regridded(law: _Ratios, side: Side, atoms: int) -> _Ratios:
    # Reduce the law to few cells, which are dense where the divergences are decided: the mass and
    # mean of each cell are kept, at its two ends or at its mean. A cell is a range of leading bits,
    # which increase with the values. Sums of n numbers >= 0 have a relative error <= n u.
    values, masses = law.values, law.masses
    if not masses.min() > 0:
        kept = masses > 0
        values, masses = values[kept], masses[kept]
    bits = np.maximum(values, float(values.max()) * _NO_RATIO).view(np.int64)
    bits >>= _FINE
    lowest = int(bits.min())
    bits -= lowest
    fine, moments = np.bincount(bits, masses), np.bincount(bits, masses * values)
    occupied = np.flatnonzero(fine)
    fine, moments = fine[occupied], moments[occupied]
    means = moments / fine
    logs = np.log(np.maximum(means, float(means[-1]) * _NO_RATIO))
    place = _EVEN * (logs - logs[0]) / max(float(logs[-1] - logs[0]), 1e-300)
    for tilt, part in _TILTS:
        dense = np.cumsum(np.cbrt(fine * (means + np.minimum(means, _LARGEST) ** (tilt + 1))))
        place += part * dense / dense[-1]
    labels = np.minimum((place * atoms).astype(np.int64), atoms - 1)
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    slip = float(len(bits) + len(occupied) + 8) * 2 * _UNIT
    whole = np.add.reduceat(fine, starts)
    mean = np.add.reduceat(moments, starts) / whole
    if not side.above:
        return _Ratios(mean * (1 + side.ratio * 2 * slip), whole * (1 - slip), 0.0)
    # A cell ends where the next one begins: both have an atom at that point.
    a = ((occupied[starts] + lowest) << _FINE).view(np.float64)
    a[0] = min(a[0], float(values.min()))
    b = np.append(a[1:], values.max())
    wide = b > a
    gap = np.where(wide, b - a, 1.0)
    share = (mean - a) / gap + side.ratio * (2 * slip * mean / gap + 8 * _UNIT)
    share = np.where(wide, np.clip(share, 0.0, 1.0), 1.0)
    whole = whole * (1 + slip)
    both = np.append(whole * (1 - share), 0.0) + np.append(0.0, whole * share)
    return _Ratios(np.append(a, b[-1]), both * (1 + 8 * _UNIT), law.hidden)


def _listed(ratios: Floats, masses: Floats, hidden: float, side: Side) -> Listing:
    if side.present:
        losses = log_bound(ratios, 1 if side.above else -1)
        masses = masses * ratios * (1 + side.mass * 4 * _UNIT)
    else:
        losses = -log_bound(ratios, -1 if side.above else 1)
        hidden = float(masses[ratios <= 0].sum()) * (1 + 2.0**-40)
    finite = np.isfinite(losses) & (masses > 0)
    losses, masses = losses[finite], masses[finite]
    if side.above:
        return Listing.above(losses, masses, hidden)
    order = np.argsort(losses, kind="stable")
    return Listing(losses[order], masses[order], 0.0)


@lru_cache(maxsize=4096)
def renyi_of_allocation(variance: Fraction, rounds: int, order: int) -> End:
    r"""An upper bound on the Renyi divergence of one epoch of random allocation, Gaussian noise.

    It holds for both orders of the datasets and an integer ``order`` >= 2. ``variance`` is the v of
    the module docstring.

    >>> float(renyi_of_allocation(Fraction(1), 1, 3))  # one round: a/2v
    1.5...
    >>> float(renyi_of_allocation(Fraction(1), 100, 3)) < 0.03
    True
    """
    with precision(_BITS):
        there = _rising(variance, rounds, order)
        gone = _falling(variance, rounds, order - 1)
        found = there.max(gone).log() / (order - 1)
        return Enclosure.of(found).upper


def _rising(variance: Fraction, rounds: int, power: int) -> arb:
    # E[(Y_1 + ... + Y_t)^a]/t^a: a! times the coefficient of z^a in (sum_j E[Y^j] z^j/j!)^t.
    before = ctx.cap
    ctx.cap = power + 1
    try:
        terms, factorial = [], arb(1)
        for j in range(power + 1):
            factorial *= max(j, 1)
            terms.append((ball(j * (j - 1) / (2 * variance))).exp() / factorial)
        whole = arb_series(terms, prec=power + 1) ** rounds
        return whole[power] * factorial / arb(rounds) ** power
    finally:
        ctx.cap = before


def _falling(variance: Fraction, rounds: int, power: int) -> arb:
    # An upper bound on E[W^-s]: on a cell [a, b] log E[e^(-mu W)] lies below its chord,
    # log A - beta mu. The integral beyond a cell has one bound, so the sum may stop at any cell.
    total, s, best = arb(0), arb(power), arb("inf")
    for i, ((a, at), (b, then)) in enumerate(pairwise(_transform(variance, rounds))):
        # The transform is non-increasing, so it is at most `at`.
        cell = at * (b**power - a**power) / power
        slope = ((at / then).log() / (b - a)).lower()
        if slope > 0:
            below, above = ((slope * end).gamma_upper(s) for end in (a, b))
            chord = at * (slope * a).exp() * (below - above) / slope**power
            cell = chord.upper() if chord < cell else cell.upper()
        total = (total + cell).upper()
        if i % _STRIDE == 0:
            stopped = (total + _integral_beyond(variance, rounds, power, b)).upper()
            best = min(best, stopped)
    return (best / s.gamma()).upper()


@lru_cache(maxsize=8)
def _transform(variance: Fraction, rounds: int) -> tuple[tuple[arb, arb], ...]:
    # Pairs (mu, an upper bound on E[e^(-mu W)]), for mu = 0 and a geometric sequence of mu.
    found = [(arb(0), arb(1))]
    mu = arb(_FIRST)
    nodes, error = _nodes(variance)
    for _ in range(_MOST_CELLS):
        scaled = -mu / rounds
        value = sum((weight * (scaled * growth).exp() for weight, growth in nodes), error)
        bound = (value**rounds).upper().min(found[-1][1])
        found.append((mu, bound))
        if float(mu) > _LAST * MOST_ORDER and float(bound.log()) < -_LAST * MOST_ORDER:
            break
        mu = (mu * arb(_RATIO)).mid()
    return tuple(found)


def _nodes(variance: Fraction) -> tuple[list[tuple[arb, arb]], arb]:
    # A trapezoid sum for E[f(e^u)], |f| <= 1 also near the real line, and a bound on its error.
    v = float(variance)
    angle = min(1.5, math.sqrt(2 * _NATS / v))
    step = math.tau * angle / (_NATS + angle * angle * v / 2 + 2)
    width = math.sqrt(2 * (_NATS + 8) / v)
    count = math.ceil(width / step)
    h, exact = arb(step), ball(variance)
    centre = -1 / (2 * exact)
    height = h * (exact / (2 * arb.pi())).sqrt()
    nodes = []
    for j in range(-count, count + 1):
        away = j * h
        nodes.append((height * (-exact * away * away / 2).exp(), (centre + away).exp()))
    a = arb(angle)
    aliases = 2 * (a * a * exact / 2).exp() / (2 * arb.pi() * a / h).expm1()
    # The terms beyond the last node decrease, so the integral from that node bounds them.
    tails = 2 * upper_tail(count * h * exact.sqrt())
    return nodes, (aliases + tails).upper()


def _integral_beyond(variance: Fraction, rounds: int, power: int, last: arb) -> arb:
    # E[e^(-mu W)] <= ((m t/(e mu))^m E[Y^-m])^t for any m > 0, integrated from `last` to infinity.
    v, best = ball(variance), arb("inf")
    for share in (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0):
        m = arb(math.ceil(share * (power + 1) * 64 / rounds)) / 64
        excess = m * rounds - power
        if not excess > 0:
            continue
        log = m * ((m * rounds / last).log() - 1) + m * (m + 1) / (2 * v)
        found = (rounds * log).exp() * last**power / excess
        if found.is_finite() and found < best:
            best = found.upper()
    return best
