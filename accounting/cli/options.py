r"""How the commands of accounting read what is typed, and print what was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import whole_number
from dpcore.numbers.rounding import down, exactly, up

if TYPE_CHECKING:
    from accounting.claims.bound import Bound

__all__ = [
    "between",
    "computed_by",
    "counts",
    "each",
    "exact",
    "whole",
]

_MOST: Final = 1 << 62
_DIGITS: Final = 9
_LONGEST: Final = 1 << 16

_T = TypeVar("_T")


def whole(argument: str, text: str, at_least: int = 0) -> int:
    r"""A whole number, 1000 or 1e3.

    >>> whole("--rounds", "1e3")
    1000
    """
    return whole_number(argument, text, at_least=at_least, at_most=_MOST)


def counts(argument: str, text: str) -> list[int]:
    r"""Whole numbers >= 1 with commas between; dots go on as the three before them do.

    >>> counts("--visits", "1,2,4,...,32"), counts("--visits", "3, 5")
    ([1, 2, 4, 8, 16, 32], [3, 5])
    """
    found: list[int] = []
    dots = False
    for part in (piece.strip() for piece in text.split(",")):
        if part in ("...", "\N{HORIZONTAL ELLIPSIS}"):
            if dots or len(found) < 3:
                raise InvalidParameter(argument, text, "dots need three numbers before them")
            dots = True
            continue
        last = whole(argument, part, 1)
        found += [*_between(argument, text, found[-3:], last), last] if dots else [last]
        dots = False
    if dots:
        raise InvalidParameter(argument, text, "dots need a number after them")
    return found


def _between(argument: str, text: str, before: list[int], last: int) -> Iterator[int]:
    first, second, third = before
    if not first < second < third < last:
        raise InvalidParameter(argument, text, "numbers around dots must rise")
    times, plus = Fraction(third, second), third - second
    if Fraction(second, first) == times:
        following: Callable[[Fraction], Fraction] = lambda at: at * times  # noqa: E731  # one of two
    elif second - first == plus:
        following = lambda at: at + plus  # noqa: E731  # the other
    else:
        raise InvalidParameter(argument, text, "dots need equal steps or equal ratios before them")
    at = following(Fraction(third))
    for _ in range(_LONGEST):
        if at >= last:
            break
        yield int(at)
        at = following(at)
    if at != last:
        raise InvalidParameter(argument, text, f"the dots do not lead to {last}")


def each(argument: str, given: Sequence[_T], count: int, otherwise: _T) -> list[_T]:
    r"""One value for each of ``count`` groups: as many as there are, or one for all of them.

    >>> each("--rounds", ["5"], 2, "1"), each("--rounds", [], 2, "1")
    (['5', '5'], ['1', '1'])
    """
    if len(given) == count:
        return list(given)
    if len(given) <= 1:
        return [given[0] if given else otherwise] * count
    raise InvalidParameter(
        argument,
        " ".join(map(str, given)),
        f"must be given once, or once for each of {count} --noise",
    )


def between(bound: Bound) -> str:
    r"""A bound in words: both ends where both are known.

    >>> from accounting.claims.bound import Bound
    >>> between(Bound(upper=Fraction(5, 2), method="basic", theorem=""))
    'at most 2.5'
    """
    if bound.upper == math.inf and bound.lower == math.inf:
        return "infinite"
    if bound.upper == math.inf and not bound.lower:
        return "not bounded by any theorem here"
    if bound.lower is None:
        return f"at most {up(bound.upper, _DIGITS)}"
    if bound.lower == bound.upper and down(bound.lower, _DIGITS) == up(bound.upper, _DIGITS):
        return f"exactly {up(bound.upper, _DIGITS)}"
    return f"between {down(bound.lower, _DIGITS)} and {up(bound.upper, _DIGITS)}"


_ENGINES: Final = {
    "direct": "sums over the outputs of one release",
    "lattice": "sums over the total loss, which takes equally spaced values",
    "line": "an integral over the total loss, enclosed from both sides",
}


def computed_by(bound: Bound) -> str:
    r"""How a bound was computed, in words: the engine, and the theorem behind it.

    >>> from accounting.claims.bound import Bound
    >>> computed_by(Bound(upper=Fraction(5, 2), method="direct", theorem="one release"))
    'direct (sums over the outputs of one release): one release'
    """
    engine = _ENGINES.get(bound.method)
    return f"{bound.method}{f' ({engine})' if engine else ''}: {bound.theorem}"


def exact(value: Fraction) -> float | str:
    r"""For JSON: the float that is written like the number, or its exact text where none is.

    A delta of 1e-400 must not be read as 0, nor 1/3 as the float next to it.

    >>> exact(Fraction(1, 10**6)), exact(Fraction(1, 3)), exact(Fraction("1e-400"))
    (1e-06, '1/3', '1e-400')
    """
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if math.isfinite(near) and Fraction(repr(near)) == value:
        return near
    return exactly(value)
