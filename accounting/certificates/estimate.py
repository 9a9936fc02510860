r"""Floating-point estimates of claims that the integer kernel cannot prove. They are not proofs.

The kernel rounds privacy losses to a grid, which widens the bounds for many rounds by about 1e-4,
and it proves only rational Renyi divergences. The estimates use the same rounds without a grid. Let
L be the total privacy loss and M(z) = E[e^(zL)]. Then

    delta(epsilon) = (1/2 pi i) integral over Re z = c > 0 of M(z) e^(-z epsilon)/(z (z + 1)) dz,

which is integrated numerically in NumPy. Renyi divergences are sums, computed in mpmath. The error
is estimated from integrals along two contours without a common point. A claim is accepted only if
the estimate determines its last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from accounting.certificates.certificate_format import Claim
from accounting.certificates.deadline import tick
from accounting.proof_kernel.law_tables import Refused, Round, masses_of, pair_of, size
from accounting.proof_kernel.series import Fixed
from accounting.proof_kernel.worst_case_neighbours import Part, scenarios

_ERROR: Final = Fraction(1, 64)
_ROUNDING: Final = 1e-15
_ABOVE: Final = 1 + 1e-12
_BITS: Final = 448
_SEEN: Final = 128
_NEGLIGIBLE: Final = 40.0
_TILTS: Final = (1.0, 0.8)
_BEYOND: Final = (1.1, 1.3, 2.0)
_MOST_TERMS: Final = 1 << 27
_LEAST_WIDTH: Final = 64
_MOST_PAIRS: Final = 1 << 23
_FEW_ROUNDS: Final = 16
_BLOCK: Final = 1 << 19
_RUN: Final = 8
_ECHOES: Final = 4
_A_UNIT: Final = 64
_WINDOW: Final = 26
_FAR: Final = 1e-148  # P(|N(0, 1)| > 26) is less
_NODES: Final = 24
_LARGEST_SHIFT: Final = 19.0  # e^loss is then below the largest float at every node
_NARROW: Final = "real-valued noise far below its sensitivity is not estimated"
_NONE: Final = 1e-19
_RARE: Final = 1e-21
_GOAL: Final = 1 / 1024
_MOST_BITS: Final = 1 << 13
_REAL: Final = mpmath.MPContext()
_REAL.prec = 256

_Floats: TypeAlias = NDArray[np.float64]
_Half: TypeAlias = tuple[_Floats, _Floats, float]
# Masses and losses of combinations, and the total mass of omitted combinations.
_Value: TypeAlias = tuple[Any, Any]
# A number and its estimated error.


def estimated(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    r"""Whether the estimate agrees with the claim, and a text; may raise :class:`Refused`."""
    if claim.quantity == "delta":
        return _inside(
            claim, _worst(parts, claim.at, float(claim.unit / max(claim.upper, claim.unit)))
        )
    if claim.quantity == "renyi":
        return _inside(claim, _largest(parts, lambda each: _renyi(each, claim.at)))
    if claim.at == 0:
        return _inside(claim, _largest(parts, _largest_loss))
    if claim.lower == claim.upper:
        raise Refused("an estimate cannot verify an exact epsilon")
    # delta decreases in epsilon: it must exceed the target at the lower end, and be below it at the
    # upper end.
    ends = claim.lower, claim.upper
    found = [_worst(parts, end, float(claim.unit)) for end in ends]
    deltas = [f"{float(value):.12g}" for value, _ in found]
    estimate = f"delta is {deltas[0]} and {deltas[1]} at the ends of the interval"
    if any(abs(value - float(claim.at)) <= error for value, error in found):
        raise Refused(f"the estimate is too close to the target to decide: {estimate}")
    holds = bool(found[0][0] > float(claim.at) > found[1][0])
    return _finding(f"{estimate}, in floats", holds=holds)


def _inside(claim: Claim, found: _Value) -> tuple[bool, str]:
    value, error = found
    estimate = f"{_REAL.nstr(_REAL.mpf(value), 20)} in floats"
    low, high = _real(claim.lower), _real(claim.upper)
    if not _REAL.isfinite(value) or (low == high and abs(value - low) > error):
        return _finding(estimate, holds=False)
    if low == high:
        raise Refused(f"{estimate}: an estimate cannot verify an exact value")
    if error > _real(_ERROR * claim.unit):
        raise Refused(f"{estimate}, with an error of {float(error):.3g}: too large to decide")
    if min(abs(value - low), abs(value - high)) <= error:
        raise Refused(f"{estimate}: too close to an end of the claimed interval")
    return _finding(estimate, holds=bool(low < value < high))


def _finding(estimate: str, *, holds: bool) -> tuple[bool, str]:
    return holds, f"estimate: {'agrees' if holds else 'contradicts'}: {estimate}"


def _real(value: Fraction) -> Any:
    return _REAL.mpf(value.numerator) / value.denominator


def _largest(parts: tuple[Part, ...], of_one: Callable[[Round], _Value]) -> _Value:
    # The largest sum over rounds of an additive quantity.
    rows = [[(of_one(each), k) for each, k in row] for row in scenarios(parts, above=True)]
    sums = [(sum(v[0] * k for v, k in row), sum(v[1] * k for v, k in row)) for row in rows]
    return max(value for value, _ in sums), max(error for _, error in sums)


# -- one round: Renyi divergences and the largest loss ---------------------------------------------


def _renyi(each: Round, order: Fraction) -> _Value:
    if each.law in ("gaussian", "laplace") or each.swapped or each.here[1] != 1:
        raise Refused("Renyi divergences of sampled rounds and real-valued noise are not estimated")
    if each.law == "stated" and each.parameters[1]:
        raise Refused("Renyi divergences of approximate claims are not estimated")
    if each.law in ("poisson", "polya", "binomial"):
        # The support ends on one side, so in one of the two directions the divergence is infinite.
        return _REAL.inf, _REAL.mpf(0)
    # The terms are largest about (order - 1) shifts from the mode of P, which needs more precision.
    power, bits = _real(order - 1), 512
    reach = float((order - 1) * abs(each.shift))
    while bits <= _MOST_BITS:
        tick()
        context = mpmath.MPContext()
        context.prec = bits
        pairs = _masses(each, bits)
        listed = [(p, q) for p, q in pairs if min(p, q) >> _SEEN]
        finite = each.law in ("stated", "discrete-laplace")
        terms = []
        for p, q in listed:
            tick()
            terms.append(context.ldexp(p * (context.mpf(p) / q) ** power, -bits))
        total = context.fsum(terms)
        ends = 0 if finite else terms[0] + terms[-1]
        whole = len(listed) == len(pairs) if finite else len(listed) > 2 * reach
        if whole and terms and ends * len(terms) <= total * context.mpf(10) ** -_NEGLIGIBLE:
            return context.log(total) / power, context.mpf(10) ** -30 * (1 + 1 / power)
        bits *= 2
    raise Refused("the law has too many values to estimate a Renyi divergence")


def _masses(each: Round, bits: int) -> list[tuple[int, int]]:
    # P and Q of each outcome or cell in units of 2^-bits, from the kernel; Q is 0 only if it is
    # exactly 0.
    size(each, bits // 3)  # raises if the table has too many values
    fixed = Fixed(bits, tick)
    if each.law == "stated":
        pair = pair_of(each, fixed, Fraction(0), 1)
        return [*((p, q) for p, q, _, _ in pair.cells), *[(pair.infinite, 0)] * (pair.infinite > 0)]
    found = masses_of(each, fixed)
    return [(p, 0 if never else q) for p, q, never in found if never or (p and q)]


def _largest_loss(each: Round) -> _Value:
    found = _REAL.inf
    match each.law:
        case "laplace":
            # P/Q lies between the values 1 - rate + rate e^(+-shift); ``swapped`` inverts P/Q.
            rate, sign = _real(each.here[1]), -1 if each.swapped else 1
            found = sign * _REAL.log(1 - rate + rate * _REAL.exp(sign * _real(each.shift)))
        case "discrete-laplace" | "staircase" | "polya-difference" | "stated":
            pairs = _masses(each, _BITS)
            if all(q for _, q in pairs):
                found = max(_REAL.log(_REAL.mpf(p) / q) for p, q in pairs if min(p, q) >> 320)
    return found, _REAL.mpf(2) ** -100


# -- many rounds -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Atoms:
    # P-masses and losses of the outcomes of one round, which is repeated ``count`` times.
    # ``infinite`` is P(L = infinity), ``omitted`` the mass of outcomes too rare to be listed.
    # ``gap`` is the typical distance between losses, infinite for a density; for the nodes of a
    # density the moments are accurate up to the frequency ``most``.

    masses: _Floats
    losses: _Floats
    infinite: float
    omitted: float
    count: int
    gap: float
    most: float = math.inf

    def log_moment(self, c: float) -> float:
        return self.count * float(logsumexp(c * self.losses, b=self.masses))

    def near(self, c: float) -> tuple[_Floats, _Floats]:
        # Only atoms that contribute to E[e^(cL)].
        powers = c * self.losses
        shares = self.masses * np.exp(powers - float(logsumexp(powers, b=self.masses)))
        kept = shares > _NONE / len(shares)
        return shares[kept], self.losses[kept]


def _worst(parts: tuple[Part, ...], epsilon: Fraction, unit: float) -> _Value:
    # ``unit`` is one unit of the last digit, relative to delta.
    found = [_delta(row, float(epsilon), unit * _GOAL) for row in _rows(parts)]
    most = max(value for value, _ in found)
    least = max(value - error for value, error in found)
    return most, max(most - least, *(value + error - most for value, error in found))


@lru_cache(maxsize=4)
def _rows(parts: tuple[Part, ...]) -> list[tuple[_Atoms, ...]]:
    rows = scenarios(parts, above=True)
    return [tuple(_atoms(each, count) for each, count in row) for row in rows]


def _delta(listed: tuple[_Atoms, ...], epsilon: float, goal: float) -> tuple[float, float]:
    hidden = -math.expm1(sum(each.count * math.log1p(-each.infinite) for each in listed))
    omitted = sum(each.count * each.omitted for each in listed)
    if epsilon > _ABOVE * sum(each.count * float(each.losses.max()) for each in listed) > 0:
        return hidden, omitted + 1e-14 * hidden
    value, error = _direct(listed, epsilon, goal) or _integral(listed, epsilon, goal)
    return hidden + value, error + omitted + 1e-14 * hidden


def _direct(listed: tuple[_Atoms, ...], epsilon: float, goal: float) -> tuple[float, float] | None:
    # All combinations of a few rounds, as two halves: for each outcome of one half, a sum over the
    # outcomes of the other half for which the total loss exceeds epsilon. Returns None if there are
    # too many combinations, or if the omitted combinations have a mass above the relative error
    # ``goal``.
    if any(each.gap == math.inf or each.count > _FEW_ROUNDS for each in listed):
        return None
    some = tuple((each.count + i % 2) // 2 for i, each in enumerate(listed))
    rest = tuple(each.count - k for each, k in zip(listed, some, strict=True))
    half, other = _combined(listed, some), _combined(listed, rest)
    if half is None or other is None:
        return None
    (p, losses, omitted), (others, places, lost) = half, other
    first = np.searchsorted(places, epsilon - losses, side="right")
    masses = np.append(np.cumsum(others[::-1])[::-1], 0.0)[first]
    moved = np.append(np.cumsum((others * np.exp(-places))[::-1])[::-1], 0.0)[first]
    here, there = float(p @ masses), float((p * np.exp(epsilon - losses)) @ moved)
    if omitted + lost > goal * (here - there):
        return None
    return here - there, 1e-13 * (here + there) + omitted + lost


@lru_cache(maxsize=4)
def _combined(listed: tuple[_Atoms, ...], counts: tuple[int, ...]) -> _Half | None:
    found: _Half | None = (np.ones(1), np.zeros(1), 0.0)
    for each, count in zip(listed, counts, strict=True):
        for _ in range(count):
            if found is not None:
                found = _with_one(*found, each)
    return found


def _with_one(p: _Floats, losses: _Floats, omitted: float, each: _Atoms) -> _Half | None:
    # Add one round to each combination; permutations of one combination are merged.
    masses, moved, size = [], [], 0
    for mass, loss in zip(each.masses, each.losses, strict=True):
        tick()
        likely = p > _RARE / mass
        omitted += float(p[~likely].sum()) * mass
        size += int(np.count_nonzero(likely))
        if size > _MOST_PAIRS:
            return None
        masses.append(p[likely] * mass)
        moved.append(losses[likely] + loss)
    found, place = np.unique(np.round(np.concatenate(moved), 13), return_inverse=True)
    merged: _Floats = np.bincount(place, weights=np.concatenate(masses)).astype(np.float64)
    return merged, found, omitted


def _integral(listed: Sequence[_Atoms], epsilon: float, goal: float) -> tuple[float, float]:
    def log_moment(c: float) -> float:
        return sum(each.log_moment(c) for each in listed)

    def height(log_c: float) -> float:
        c = math.exp(log_c)
        return log_moment(c) - c * epsilon - math.log(c * (c + 1))

    best = math.exp(minimize_scalar(height, bounds=(-9.0, 9.0), method="bounded").x)
    found = []
    for tilt in _TILTS:
        c = best * tilt
        top = log_moment(c) - c * epsilon
        # The trapezoid rule adds e^(cnT) delta(epsilon + nT), n = -1, 1, ..., to delta, where
        # delta(x) <= M(b) e^(-bx) for any b > c.
        near = (_NEGLIGIBLE + max(-top, 0.0)) / c
        beyond = (
            (_NEGLIGIBLE + log_moment(more * c) - more * c * epsilon - top) / (more * c - c)
            for more in _BEYOND
        )
        span = max(near, min(beyond))
        with np.errstate(over="raise", invalid="raise"):
            found.append(_contour(listed, epsilon, c, span, top, goal))
    (first, error), (second, _) = found
    return first, 8 * abs(first - second) + error


def _contour(
    listed: Sequence[_Atoms], epsilon: float, c: float, span: float, top: float, goal: float
) -> tuple[float, float]:
    step = 2 * math.pi / span
    least = _ECHOES * 2 * math.pi / min(each.gap for each in listed)
    kept = [each.near(c) for each in listed]
    width = sum(len(losses) for _, losses in kept)
    block = max(_BLOCK // width // _RUN, 1) * _RUN
    most = min(each.most for each in listed)
    sizes: list[float] = []
    total = 0.0
    steps = 1j * step * np.arange(block)
    turns = [np.exp(np.outer(steps, losses)) for _, losses in kept]
    while True:
        tick()
        start = len(sizes) * _RUN
        height = 1j * step * start
        z = c + height + steps
        logs = -(height + steps) * epsilon  # relative to the term at c, e^top
        for each, (shares, losses), turn in zip(listed, kept, turns, strict=True):
            moments = turn @ (shares * np.exp(height * losses))
            logs = logs + each.count * np.log(np.where(moments == 0, 1e-300, moments))
        terms = np.exp(logs) / (z * (z + 1)) * (1 if start else np.where(z.imag == 0, 0.5, 1))
        terms[z.imag > most] = 0
        total += float(terms.real.sum())
        sizes += [*map(float, np.abs(terms).reshape(-1, _RUN).sum(axis=1))]
        # Assumption of the estimate: the omitted terms sum to at most the last half of all terms.
        last = min(len(sizes), math.ceil(most / step / _RUN) if most < math.inf else len(sizes))
        rest, size = sum(sizes[last // 2 :]), sum(sizes)
        seen = z.imag[-1] >= least and rest <= max(_ROUNDING * size, goal * abs(total))
        if seen or z.imag[-1] > most or len(sizes) * _RUN * (width + _LEAST_WIDTH) > _MOST_TERMS:
            break
    scale = 2 / span * math.exp(top)
    rounds = sum(each.count for each in listed)
    return scale * total, scale * (4 * rest + _ROUNDING * (rounds + 16) * size)


def _atoms(each: Round, count: int) -> _Atoms:
    tick()
    match each.law:
        case "gaussian":
            losses, q = _of_gaussian(each)
        case "laplace":
            losses, q = _of_laplace(each)
        case _:
            found = _masses(each, _BITS)
            infinite = math.fsum(math.ldexp(p, -_BITS) for p, q in found if not q)
            seen = [(p, q) for p, q in found if min(p, q) >> _SEEN]
            p = np.array([math.ldexp(p, -_BITS) for p, _ in seen])
            losses = np.array([math.log(p / q) for p, q in seen])
            order = np.argsort(losses)
            likely = losses[order][p[order] > 1e-9]
            gaps = np.diff(likely)[np.diff(likely) > 1e-12]
            gap = float(np.median(gaps)) if len(gaps) else 1.0
            rest = (1 << _BITS) - sum(p for p, q in found if not q or min(p, q) >> _SEEN)
            return _Atoms(
                masses=p,
                losses=losses,
                infinite=infinite,
                omitted=abs(math.ldexp(rest, -_BITS)),
                count=count,
                gap=gap,
            )
    # P = Q e^L; the masses of each add up to 1.
    masses, losses = (q, -losses) if each.swapped else (q * np.exp(losses), losses)
    masses = masses / masses.sum()
    gap, most, omitted = math.inf, 3 / float(np.abs(np.diff(losses)).max()), _FAR
    if each.law == "laplace":
        omitted = 0.0
        gap, most = 2 * float(each.shift), 20 * _panels(float(each.shift)) / float(each.shift)
    return _Atoms(
        masses=masses, losses=losses, infinite=0.0, omitted=omitted, count=count, gap=gap, most=most
    )


def _of_gaussian(each: Round) -> tuple[_Floats, _Floats]:
    # log P/Q and Q at the nodes of a trapezoid rule, whose error decreases exponentially for
    # analytic densities; both are relative to the density of N(0, 1).
    shift = float(each.shift)
    if (max(len(each.here), len(each.there)) - 1) * shift > _LARGEST_SHIFT:
        raise Refused(_NARROW)
    low = math.floor(-_WINDOW - (len(each.there) - 1) * shift) * _A_UNIT
    high = math.ceil(_WINDOW + (len(each.here) - 1) * shift) * _A_UNIT
    x = np.arange(low, high) / _A_UNIT
    here, there = _mixed(each.here, x, shift), _mixed(each.there, -x, shift)
    base = -(x**2) / 2 - math.log(_A_UNIT * math.sqrt(2 * math.pi))
    return here - there, np.exp(base + there)


def _mixed(chances: Sequence[Fraction], x: _Floats, shift: float) -> _Floats:
    # log of the sum of chance_j e^(j shift x - (j shift)^2/2), accurate also where it is near 0.
    j = np.arange(len(chances))[:, None] * shift
    powers, weights = j * x - j**2 / 2, np.array([[float(chance)] for chance in chances])
    moved = (weights * np.expm1(np.minimum(powers, 1.0))).sum(axis=0)
    near = (powers.max(axis=0) < 1) & (moved > -0.5)
    found: _Floats = logsumexp(powers, axis=0, b=weights)
    found[near] = np.log1p(moved[near])
    return found


def _panels(shift: float) -> int:
    if shift > 1 << 8:
        raise Refused(_NARROW)
    return max(math.ceil(4 * shift), 64)


def _of_laplace(each: Round) -> tuple[_Floats, _Floats]:
    # Two atoms where the loss is constant, and Gauss-Legendre panels between them.
    shift, rate = float(each.shift), float(each.here[1])
    panels = _panels(shift)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = shift / panels / 2
    x = np.concatenate([half * (2 * i + 1 + nodes) for i in range(panels)])
    w = np.tile(weights * half, panels)
    far = math.exp(-shift) / 2
    q = np.concatenate([[0.5], np.exp(-x) / 2 * w, [far]])
    p = np.concatenate([[far], np.exp(x - shift) / 2 * w, [0.5]])
    return np.log1p(rate * (p - q) / q), q
