r"""The masses of each law, by formulas of this file's own, at fifty digits.

A law is its name and its rational parameters. :func:`reach` bounds both tails by Chernoff,
:func:`masses` lists the masses between two integers. The formulas are chosen to differ from those
of the package where there is a choice: Skellam and Polya differences by backward recurrence,
normalised by their own sum, sums of discrete Gaussians by a Fourier sum in integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

from mpmath import MPContext

from accounting.checker.clock import tick, ticking
from accounting.checker.laws.law import Law, Unchecked

__all__ = [
    "MOST_ATOMS",
    "REAL",
    "Number",
    "effort",
    "masses",
    "reach",
    "real",
]

Number: TypeAlias = Any
"""A real number of mpmath, which has no types."""

REAL: Final = MPContext()
REAL.prec = 192

MOST_ATOMS: Final = 1 << 16
_FIXED: Final = 160
_KEPT: Final = 150
_FARTHEST: Final = 2500
_MOST_WORK: Final = 1 << 36


def real(value: Fraction | int) -> Number:
    r"""An exact rational as a number of this path.

    >>> real(Fraction(1, 4))
    mpf('0.25')
    """
    exact = Fraction(value)
    return REAL.mpf(exact.numerator) / exact.denominator


# -- how far a law reaches -------------------------------------------------------------------------


def reach(law: Law, surprise: float, most: int = MOST_ATOMS) -> tuple[int, int]:
    r"""(low, high) with P(X < low) and P(X > high) each at most e^-surprise, by Chernoff bounds.

    They are taken at ``surprise`` + 1, which is far more than the rounding of their floats.

    >>> reach(Law("poisson", (Fraction(1),)), 50.0)[0]
    0

    Raises :class:`Unchecked` when there are more than ``most`` values between them.
    """
    try:
        low, high = _reach(law, surprise + 1)
    except (OverflowError, ZeroDivisionError, ValueError) as error:
        raise Unchecked(f"{law.name}: its parameters are beyond every float") from error
    if high - low > most:
        raise Unchecked(f"{law.name}: more than {most} values matter")
    return low, high


def _reach(law: Law, surprise: float) -> tuple[int, int]:
    x = [float(p) for p in law.parameters]
    if not all(0 < p < 1e15 for p in x):
        raise OverflowError
    match law.name:
        case "discrete-laplace":
            return _both(x[0] * surprise)
        case "discrete-gaussian":
            return _both(math.sqrt(2 * x[0] * (surprise + 1)))
        case "discrete-gaussian-sum":
            # E e^(cX) <= e^(c^2 n v/2).
            return _both(math.sqrt(2 * x[0] * x[1] * surprise))
        case "skellam":
            v = x[0]
            return _both(
                _first(lambda t: t * math.asinh(t / v) - t * t / (math.hypot(t, v) + v), surprise)
            )
        case "polya":
            return 0, _first(_polya_exponent(x[0], x[1]), surprise, x[0] * x[1])
        case "polya-difference":
            return _both(_first(_polya_exponent(x[0], x[1]), surprise + 1, x[0] * x[1]))
        case "poisson":
            return _counts(x[0], surprise, None)
        case _:
            return _counts(x[0] * x[1], surprise, int(law.parameters[0]))


def _both(most: float) -> tuple[int, int]:
    return -math.ceil(most) - 1, math.ceil(most) + 1


def _first(exponent: Callable[[float], float], surprise: float, start: float = 0.0) -> int:
    # The first integer, up to a doubling, at which a rising exponent exceeds `surprise`.
    step = 1.0
    while exponent(start + step) < surprise:
        step *= 2
        if step > 1e12:
            raise OverflowError
    low, high = step / 2, step
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if exponent(start + middle) >= surprise else (middle, high)
    return math.ceil(start + high)


def _polya_exponent(r: float, s: float) -> Callable[[float], float]:
    # -log of inf over u of E u^X / u^t, at u = t/(beta (t + r)).
    def exponent(t: float) -> float:
        rise = r * (math.log(-math.expm1(-1 / s)) + math.log1p(t / r))
        return -rise - t * (math.log1p(r / t) - 1 / s)

    return exponent


def _counts(mean: float, surprise: float, most: int | None) -> tuple[int, int]:
    # Poisson's Chernoff bound holds for the binomial too.
    high = _first(lambda t: t * math.log(t / mean) - t + mean, surprise, mean)
    low = max(math.floor(mean - math.sqrt(2 * mean * surprise)), 0)
    return low, high if most is None else min(high, most)


# -- the masses ------------------------------------------------------------------------------------


def masses(law: Law, low: int, high: int, most: int = 4 * MOST_ATOMS) -> list[Number]:
    r"""[P(X = low), ..., P(X = high)], ``most`` at most.

    >>> REAL.nstr(masses(Law("skellam", (Fraction(400),)), 0, 0)[0], 13)
    '0.01995335628194'
    """
    if high - low > most:
        raise Unchecked(f"{law.name}: more than {most} values asked for")
    if law.name in _HALVES:
        half = _HALVES[law.name](max(abs(low), abs(high)), *law.parameters)
        return [half[abs(k)] for k in range(low, high + 1)]
    return _one_sided(law, low, high)


def _laplace(most: int, scale: Fraction) -> list[Number]:
    beta = REAL.exp(-1 / real(scale))
    return _falling(-REAL.expm1(-1 / real(scale)) / (1 + beta), most, lambda _: beta)


def _falling(first: Number, most: int, ratio: Callable[[int], Number]) -> list[Number]:
    found = [first]
    for k in ticking(range(most)):
        found.append(found[-1] * ratio(k))
    return found


def _gaussian(most: int, sigma_squared: Fraction) -> list[Number]:
    # Far enough that what is left out of the sum is below 2^-192 of it.
    end = max(most, math.isqrt(math.ceil(2 * sigma_squared * 140)) + 2)
    rate = REAL.exp(-1 / (2 * real(sigma_squared)))
    square, step = rate * rate, [rate]
    for _ in ticking(range(end)):
        step.append(step[-1] * square)
    found = _falling(REAL.mpf(1), end, lambda k: step[k])
    total = 2 * REAL.fsum(found) - 1
    return [mass / total for mass in found[: most + 1]]


def _skellam(most: int, variance: Fraction) -> list[Number]:
    # I_(n-1) = I_(n+1) + (2n/v) I_n downwards, where it is stable.
    v = real(variance)
    _, end = _reach(Law("skellam", (variance,)), 150.0)
    end = max(end, most) + 40
    end += 4 * math.isqrt(end)
    return _backwards(end, most, lambda n, here, above: above + 2 * n * here / v)


def _polya_difference(most: int, shape: Fraction, scale: Fraction) -> list[Number]:
    # (n+1-r) b p(n+1) - (1+b^2) n p(n) + (n-1+r) b p(n-1) = 0 downwards.
    r, beta = real(shape), REAL.exp(-1 / real(scale))
    _, end = _reach(Law("polya-difference", (shape, scale)), 150.0)
    if end > 8 * MOST_ATOMS:
        raise Unchecked("polya-difference: too wide")
    end = max(end, most) + math.ceil(80 * scale) + 40
    both = 1 + beta * beta

    def below(n: int, here: Number, above: Number) -> Number:
        return (both * n * here - (n + 1 - r) * beta * above) / ((n - 1 + r) * beta)

    return _backwards(end, most, below)


def _backwards(end: int, most: int, below: Callable[[int, Number, Number], Number]) -> list[Number]:
    # p(0), ..., p(most), from p(n - 1) = below(n, p(n), p(n + 1)) down from far beyond; sum = 1.
    above, here, found = REAL.zero, REAL.one, [REAL.one]
    for n in ticking(range(end, 0, -1)):
        above, here = here, below(n, here, above)
        found.append(here)
    found.reverse()
    total = 2 * REAL.fsum(found) - found[0]
    return [mass / total for mass in found[: most + 1]]


def _gaussian_sum(most: int, count: Fraction, sigma_squared: Fraction) -> list[Number]:
    r"""p(m) = (1/N) sum_j F(2 pi j/N)^n cos(2 pi j m/N), N beyond every value of consequence.

    In fixed point, with 192 bits and more below the least mass p(most); :func:`_surprise_of_sum`
    bounds that from below.
    """
    n, v = int(count), float(sigma_squared)
    if _one_gaussian(n, v, most):
        return _gaussian(most, count * sigma_squared)
    bits, size, _ = _plan(n, v, most)
    with REAL.workprec(bits):
        single = _gaussian(math.isqrt(math.ceil(1.4 * sigma_squared * bits)) + 2, sigma_squared)
        fixed = [int(REAL.floor(mass * (1 << bits))) for mass in single]
        found = [1 << bits] * (most + 1)
        for j in range(1, size // 2 + 1):
            tick()
            turn = int(REAL.floor(REAL.cos(2 * REAL.pi * j / size) * (1 << bits)))
            waves = _cosines(turn, max(most, len(fixed) - 1), bits)
            moment = (fixed[0] << bits) + 2 * sum(map(int.__mul__, fixed[1:], waves[1:]))
            factor = REAL.mpf(moment >> bits) / (1 << bits)
            weight = int(REAL.floor(factor**n * (1 << bits))) * (1 if 2 * j == size else 2)
            if abs(weight) < 1 << 8:
                break
            for m in ticking(range(most + 1)):
                found[m] += weight * waves[m] >> bits
        if min(found) < 1 << _KEPT:
            raise Unchecked("discrete-gaussian-sum: its tail is below the digits kept")
        return [REAL.mpf(mass) / size / (1 << bits) for mass in found]


def _plan(n: int, v: float, most: int) -> tuple[int, int, int]:
    # The bits kept, the period N, and the work: turns times values times digits.
    total, surprise = n * v, _surprise_of_sum(n, v, most)
    if n > 1 << 14 or total > 1e8 or most > 2 * MOST_ATOMS:
        raise Unchecked("discrete-gaussian-sum: too many draws")
    if surprise > _FARTHEST:
        raise Unchecked("discrete-gaussian-sum: too far out")
    bits = math.ceil(surprise * 1.4427) + _FIXED + 2 * n.bit_length() + 32
    size = math.isqrt(math.ceil(2 * total * bits * 0.7)) + 2 + most
    turns = size / 2 if v <= 1 else min(size / 2, 1 + size * math.sqrt(1.4 * bits / total) / 6)
    work = turns * (2 * most + math.sqrt(1.4 * v * bits)) * bits * (1 + bits / 512)
    if work > _MOST_WORK:
        raise Unchecked("discrete-gaussian-sum: too much work")
    return bits, size, math.ceil(work)


def effort(law: Law, values: int) -> int:
    r"""What it takes to list ``values`` masses around 0, in masses of any other law.

    >>> effort(Law("skellam", (Fraction(4),)), 101)
    101
    >>> effort(Law("discrete-gaussian-sum", (Fraction(10_000), Fraction(1))), 1001)
    16824
    """
    if law.name != "discrete-gaussian-sum":
        return values
    n, v = int(law.parameters[0]), float(law.parameters[1])
    if _one_gaussian(n, v, values // 2):
        return values
    return max(values, _plan(n, v, values // 2)[2] >> 17)


def _surprise_of_sum(n: int, v: float, most: int) -> float:
    r"""A bound of -log p(most), and so of -log p(m) for every |m| <= most: p falls in |m|.

    With most = n a + r, 0 <= r < n: x_i -> x_i + a maps the draws of sum r onto those of sum most
    and multiplies their mass by e^-((n a^2 + 2 a r)/2v). And x -> x + 1 on a set A of r draws maps
    those of sum 0 onto those of sum r, by e^-((2 sum over A of x + r)/2v); over all A the mean of
    sum over A of x is 0, so by Jensen p(r) >= p(0) e^-(r/2v). Together

        p(most) >= p(0) e^-(most^2/2nv + r (n - r)/2nv).

    The variance is at most nv (Canonne, Kamath and Steinke 2020), so three quarters of the mass lie
    within 2 sqrt(nv), at most 4 sqrt(nv) + 1 values, and p(0), the largest, is 3/4 of a share.
    """
    rest = most % n
    ripple = (most * most + rest * (n - rest)) / (2 * n * v)
    return ripple + math.log((4 * math.sqrt(n * v) + 1) * 4 / 3)


def _one_gaussian(n: int, v: float, most: int) -> bool:
    # Whether the sum is a discrete Gaussian of variance nv, to 2^-192 of the mass at ``most``:
    # for n >= 64 and v >= 16 no two masses differ by more than 8 n e^(-2 pi^2 v (1 - 1/n)).
    if n < 64 or v < 16:
        return False
    off = 2 * math.pi**2 * v * (1 - 1 / n) - math.log(8 * n)
    mass = most * most / (2 * n * v) + math.log(1 + math.sqrt(2 * math.pi * n * v))
    return off - mass > 134


def _cosines(turn: int, most: int, bits: int) -> list[int]:
    # cos(m t) by Chebyshev's recurrence.
    found = [1 << bits, turn]
    for _ in ticking(range(most - 1)):
        found.append((turn * found[-1] >> (bits - 1)) - found[-2])
    return found


_HALVES: Final[dict[str, Callable[..., list[Number]]]] = {
    "discrete-laplace": _laplace,
    "discrete-gaussian": _gaussian,
    "discrete-gaussian-sum": _gaussian_sum,
    "skellam": _skellam,
    "polya-difference": _polya_difference,
}


def _one_sided(law: Law, low: int, high: int) -> list[Number]:
    first = max(low, 0)
    x = [real(p) for p in law.parameters]
    match law.name:
        case "poisson":
            start = REAL.exp(first * REAL.log(x[0]) - x[0] - REAL.loggamma(first + 1))

            def ratio(k: int) -> Number:
                return x[0] / (first + k + 1)
        case "polya":
            beta = REAL.exp(-1 / x[1])
            spread = REAL.loggamma(first + x[0]) - REAL.loggamma(x[0]) - REAL.loggamma(first + 1)
            start = REAL.exp(spread + x[0] * REAL.log1p(-beta) - first / x[1])

            def ratio(k: int) -> Number:
                return beta * (first + k + x[0]) / (first + k + 1)
        case _:
            n, odds = int(law.parameters[0]), x[1] / (1 - x[1])
            if first > n:
                return [REAL.zero] * (high - low + 1)
            ways = REAL.loggamma(n + 1) - REAL.loggamma(first + 1) - REAL.loggamma(n - first + 1)
            start = REAL.exp(ways + first * REAL.log(x[1]) + (n - first) * REAL.log1p(-x[1]))

            def ratio(k: int) -> Number:
                return odds * max(n - first - k, 0) / (first + k + 1)

    found = _falling(start, high - first, ratio) if high >= first else []
    return [REAL.zero] * (high - low + 1 - len(found)) + found
