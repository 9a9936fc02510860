r"""Features of numbers: digits and bits of floats and integers.

Floating-point noise is visible in its digits. The possible values of a rounded x + z depend on x
(Mironov 2012, "On significance of the least significant bits for differential privacy"): with x = 0
small outputs keep all the digits of small noise, with x = 1 they are multiples of 2^-53.
``lowest-bit`` distinguishes such multiples from other floats at every magnitude. For other pairs of
answers the possible floats differ only at some magnitudes, or on one side of 0 (Haney,
Desfontaines, Hartman, Shrestha and Hay 2022, "Precision-based attacks and interval refining"):
``precision`` distinguishes these.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.features.apply_feature import Map, Misread, number_of
from audit.outputs.output_parser import Outputs

_FORMATS: Final = {2: ("<e", "<H", 10), 4: ("<f", "<I", 23), 8: ("<d", "<Q", 52)}
_DIGITS: Final = 53
_PART: Final = 10_000
_ABOVE: Final = 1_100  # every float has an exponent above -1100
_TOP: Final = 3_800
_CLOCK: Final = 64


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    # One number per run; a row of one number counts as that number.
    if array.size != len(array):
        raise Misread("rows")
    return array.reshape(len(array))


def _sign(output: object) -> object:
    x = number_of(output)
    if math.isnan(x):
        return math.nan
    if x == 0:
        return "-0" if math.copysign(1.0, x) < 0.0 else 0
    return 1 if x > 0 else -1


def _signs(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind != "f":
        return (flat > 0).astype(np.int64) - (flat < 0)
    signs: NDArray[Any] = np.sign(flat)
    negative_zero = (flat == 0.0) & np.signbit(flat)
    if not bool(negative_zero.any()):
        return signs
    labels = signs.astype(object)
    labels[negative_zero] = "-0"
    return list(labels)


SIGN: Final = Map(name="sign", of_one=_sign, of_array=_signs)
r"""The sign: -1, 0 or 1, or the label "-0" for -0.0, which rounding towards zero can produce.

>>> SIGN([-2.5, 0.0, -0.0, 7])
[-1, 0, '-0', 1]
"""


def _exponent(output: object) -> int | float:
    x = number_of(output)
    if x == 0:
        return -math.inf
    if isinstance(x, int):
        return x.bit_length() - 1
    return math.frexp(x)[1] - 1 if math.isfinite(x) else abs(float(x))


def _exponents(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind == "f":
        wide = flat.astype(np.float64)
        _, power = np.frexp(wide)
        return np.where(
            wide == 0.0, -np.inf, np.where(np.isfinite(wide), power - 1.0, np.abs(wide))
        )
    size = flat.astype(np.int64, casting="unsafe").view(np.uint64)
    size = np.where(flat < 0, np.negative(size), size)
    _, power = np.frexp(size.astype(np.float64))
    # Converting an integer just below a power of two to float may round it up to that power.
    power -= np.right_shift(size, np.clip(power - 1, 0, 63).astype(np.uint64)) == 0
    return np.where(size == 0, -np.inf, power - 1.0)


EXPONENT: Final = Map(name="exponent", of_one=_exponent, of_array=_exponents)
r"""The exponent floor(log2 \|x\|): -inf for 0, and inf or nan for these.

>>> EXPONENT([0.75, -8.0, 2**100])
[-1, 3, 100]
"""


def _lowest_bit(output: object) -> int | float:
    x = number_of(output)
    if x == 0:
        return math.inf
    if isinstance(x, int):
        return (x & -x).bit_length() - 1
    if not math.isfinite(x):
        return math.nan
    top, bottom = float(x).as_integer_ratio()
    return (top & -top).bit_length() - bottom.bit_length()


def _lowest_bits(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind == "f":
        wide = flat.astype(np.float64)
        usable = np.isfinite(wide) & (wide != 0.0)
        part, power = np.frexp(np.where(usable, wide, 1.0))
        digits = np.ldexp(part, _DIGITS).astype(np.int64)
        _, lowest = np.frexp((digits & -digits).astype(np.float64))
        found = power - _DIGITS + lowest - 1.0
        return np.where(usable, found, np.where(wide == 0.0, np.inf, np.nan))
    pattern = flat.astype(np.int64, casting="unsafe").view(np.uint64)
    _, lowest = np.frexp((pattern & np.negative(pattern)).astype(np.float64))
    return np.where(pattern == 0, np.inf, lowest - 1.0)


LOWEST_BIT: Final = Map(name="lowest-bit", of_one=_lowest_bit, of_array=_lowest_bits)
r"""The largest e for which x is a multiple of 2^e; inf for 0, nan if x is not finite.

>>> LOWEST_BIT([0.75, 3 * 2.0**-53, 12])
[-2, -53, 2]
"""


def _precision(output: object) -> object:
    lowest = _lowest_bit(output)
    if not isinstance(lowest, int):  # inf for 0, or nan
        return -lowest
    size = min(int(_exponent(output)), _TOP) + _ABOVE
    return (_PART * -lowest + _PART // 2 + (size if number_of(output) > 0 else -size)) / _PART


def _precisions(array: NDArray[Any]) -> Outputs:
    flat = _flat(array)
    lowest, exponent = (np.asarray(found(flat)) for found in (_lowest_bits, _exponents))
    usable = np.isfinite(lowest)
    size = np.where(usable, exponent, 0.0) + _ABOVE
    side = _PART // 2 + np.where(flat > 0, size, -size)
    return np.where(usable, (_PART * np.where(usable, -lowest, 0.0) + side) / _PART, -lowest)


PRECISION: Final = Map(name="precision", of_one=_precision, of_array=_precisions)
r"""The precision of a number, with its magnitude: p + 1/2 + s (k + 1100)/10^4, where p is the
number of fractional binary digits that it needs (minus ``lowest-bit``), k its exponent and s its
sign; -inf for 0, nan if x is not finite. Values are ordered by p, and for equal p by the number.

The parts detect different leaks. Lowest bits alone detect noise added to 0 in only one dataset
(Mironov 2012). Exponents also detect noise added to 1 and to 1.1: both sums lose the same last
bits, except where they are small. They also detect noise that is scaled afterwards, by 0.3 or for a
mean by 1/100, so that some floats of each magnitude are impossible. Signs also detect noise added
to -1 and to 1, where one is the mirror image of the other.

>>> PRECISION([0.75, -0.75, 12])
[2.6099, 2.3901, -1.3897]
"""


def _last_bits_of(output: object, bits: int) -> object:
    x = number_of(output)
    if isinstance(x, int):
        return x & ((1 << bits) - 1)
    if not math.isfinite(x):
        return x
    size = output.dtype.itemsize if isinstance(output, np.floating | np.ndarray) else 8
    if size not in _FORMATS:
        raise Misread("an unsupported float format")
    as_float, as_bits, digits = _FORMATS[size]
    (pattern,) = struct.unpack(as_bits, struct.pack(as_float, x))
    return int(pattern) & ((1 << min(bits, digits)) - 1)


def _last_bits(array: NDArray[Any], bits: int) -> Outputs:
    flat = _flat(array)
    if flat.dtype.kind != "f":
        return flat.astype(np.int64, casting="unsafe") & ((1 << bits) - 1)
    size = flat.dtype.itemsize
    pattern = flat.astype(flat.dtype.newbyteorder("=")).view(f"u{size}").astype(np.int64)
    found = pattern & ((1 << min(bits, _FORMATS[size][2])) - 1)
    finite = np.isfinite(flat)
    return found if bool(finite.all()) else np.where(finite, found, flat.astype(np.float64))


def last_bits(bits: int) -> Map:
    r"""The lowest ``bits`` bits of the stored significand of a float, or of an integer.

    A float64 has 52 of them, a float32 23; inf and nan are unchanged.
    """
    return Map.with_number("last-bits", bits, _last_bits_of, _last_bits)


def _modulo_of(output: object, step: float) -> object:
    x = number_of(output)
    if isinstance(x, int) and float(step).is_integer():
        return (x % int(step)) / step
    return float(parts_of_step(np.array([x], dtype=np.float64), step=step)[0])


def parts_of_step(numbers: NDArray[Any], *, step: float) -> NDArray[np.float64]:
    r"""The values of :func:`modulo` for an array of numbers."""
    wide = numbers.astype(np.float64)
    finite = np.isfinite(wide)
    rest = np.fmod(np.where(finite, wide, 0.0), step)  # fmod is exact
    found = np.rint(rest / step * _CLOCK) % _CLOCK / _CLOCK
    if float(step).is_integer():
        found = np.where(wide == np.rint(wide), rest % step / step, found)
    return np.where(finite, found, wide)


def _modulo(array: NDArray[Any], step: float) -> NDArray[Any] | None:
    flat = _flat(array)
    if flat.dtype.kind == "f" or not float(step).is_integer():
        return parts_of_step(flat, step=step)
    return flat.astype(np.int64) % int(step) / step if flat.dtype.kind == "i" else None


def modulo(step: float) -> Map:
    r"""The remainder of a number modulo a step, as a fraction of the step, to the nearest 64th;
    exact for an integer and an integer step.

    Noise on a grid of 0.01 reveals an added value that is not a multiple of 0.01, because the
    remainder is the same in every run. Likewise, the feature shows a grid on which only the numbers
    of one dataset lie. inf and nan are unchanged.
    """
    return Map.with_number("modulo", step, _modulo_of, _modulo)


def _round_of(output: object, digits: int) -> object:
    match output:
        case list() | tuple():
            return tuple(_round_of(item, digits) for item in output)
        case np.ndarray() if output.ndim:
            return tuple(_round_of(item, digits) for item in output)
    x = number_of(output)
    if isinstance(x, int) and digits >= 0:
        return x
    return float(_round(np.array([x], dtype=np.float64), digits)[0])


def _round(array: NDArray[Any], digits: int) -> NDArray[Any]:
    if array.dtype.kind != "f" and digits >= 0:
        return array
    wide, power = array.astype(np.float64), 10.0 ** abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):
        if digits >= 0:
            found = np.rint(wide * power) / power
        else:
            found = np.rint(wide / power) * power
    # A number whose scaled value overflows is an integer, so it is returned unchanged.
    return np.where(np.isfinite(found), found, wide)


def rounded(digits: int) -> Map:
    r"""Round every number to ``digits`` decimals, also within sequences.

    Vectors of floats are hardly ever repeated; rounded ones are, and can be counted.
    """
    return Map.with_number("round", digits, _round_of, _round)


_TRIPLES: Final = 96
_SURE: Final = 64.0  # the factor by which a remainder must drop to count as 0
_SLACK: Final = 4.0  # in units of rounding errors
_APART: Final = 2.0**-7  # in steps: the largest deviation of a distance that counts as whole steps
_NATS: Final = 7.0


def step_of(numbers: Sequence[float] | NDArray[np.floating[Any]]) -> float | None:
    r"""The coarsest step such that a third of the numbers differ by multiples of it; None if there
    is no such step, or if all numbers look random on a finer lattice.
    """
    x = np.asarray(numbers, dtype=np.float64)
    if len(x) < 3 or not bool(np.isfinite(x).all()):
        return None
    on = {step: _two_largest(x, step) for step in _steps(x)}
    finest = max((step for step, (first, _) in on.items() if first == len(x)), default=0.0)
    found = [
        step
        for step, (first, second) in on.items()
        if 3 * first >= len(x) and _more_than_chance(first + second, len(x), finest / step)
    ]
    return max(found, default=None)


def _steps(x: NDArray[np.float64]) -> set[float]:
    rng, unit = np.random.default_rng(len(x)), float(np.spacing(np.abs(x).max()))
    found = set()
    for _ in range(_TRIPLES):
        a, b, c = x[rng.permutation(len(x))[:3]].tolist()
        if step := _common(abs(a - b), abs(a - c), unit):
            found.add(_refined(x - a, step))
    return found


def _common(one: float, other: float, unit: float) -> float:
    # The common divisor of two numbers known up to a few ``unit``; 0 if it cannot be determined.
    whole, high, low = max(one, other), max(one, other), min(one, other)
    while low > _SLACK * unit * whole / max(high, unit):
        high, low = low, abs(high - round(high / low) * low)
    return high if high * high > _SURE * _SLACK * unit * whole else 0.0


def _refined(moved: NDArray[np.float64], step: float) -> float:
    # Refit the step by least squares over the numbers that are whole steps away, and round it to
    # the fewest digits that change no multiple noticeably.
    times = np.rint(moved / step)
    near = np.abs(moved / step - times) < _APART
    if bool(times[near].any()):
        step = float(times[near] @ moved[near] / (times[near] @ times[near]))
    if step > 0.5 and not bool((moved != np.rint(moved)).any()):
        return float(np.rint(step))
    for digits in range(1, 17):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) * float(np.ptp(moved)) < _APART * step * step / 16.0:
            return short
    return step


def _two_largest(x: NDArray[np.float64], step: float) -> tuple[int, int]:
    # The sizes of the two largest classes of numbers that are whole steps apart.
    counts = [0, 0]
    rest = (x - x[0]) / step % 1.0
    apart = _APART if bool((x != np.rint(x)).any()) else min(_APART, 0.5 / step)
    for place in (0, 1):
        if len(rest):
            near = np.abs((rest[:, None] - rest + 0.5) % 1.0 - 0.5) < apart
            best = int(near.sum(axis=1).argmax())
            counts[place] = int(near[best].sum())
            rest = rest[~near[best]]
    return counts[0], counts[1]


def _more_than_chance(many: int, of: int, part: float) -> bool:
    # On a finer lattice, two classes contain a fraction ``2 part`` by chance (Chernoff's bound and
    # a union bound over all pairs of classes).
    if not part:
        return True
    share, by_chance = many / of, 2.0 * part
    if share <= by_chance:
        return False
    left = (1.0 - share) * math.log((1.0 - share) / (1.0 - by_chance)) if share < 1.0 else 0.0
    information = share * math.log(share / by_chance) + left
    return of * information > _NATS + 2.0 * math.log(1.0 / part)
