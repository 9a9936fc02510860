r"""Plot the privacy curve of a guarantee: proven points joined by lines.

This module needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from accounting.guarantees.bound import Bound
from dpcore.cli.figure_file import axes_or_new
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer
from dpcore.numbers.rounding import exactly

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SEEN: Final = 1 / 1000
"""Lines closer than this fraction of the plot's width are indistinguishable."""


def deltas_down_to(least: Fraction, count: int) -> list[Fraction]:
    r"""``count`` >= 2 deltas from 1/2 down to ``least``, evenly spaced on a logarithmic scale."""
    count = integer("points", count, at_least=2)
    if not 0 < least < Fraction(1, 2):
        raise InvalidParameter("least_delta", exactly(least), "must lie in (0, 1/2)")
    # The deltas are evenly spaced in the logarithm and rounded to four digits; both ends are exact.
    span = math.log10(least.numerator) - math.log10(least.denominator) + math.log10(2)
    found = [Fraction(1, 2)]
    for i in range(1, count - 1):
        place = span * i / (count - 1) - math.log10(2)
        digits = Fraction(f"{10 ** (place - math.floor(place)):.3f}")
        found.append(digits * Fraction(10) ** math.floor(place))
    return [*found, least]


def draw_curve(axes: Axes, points: Sequence[tuple[float, Bound]]) -> None:
    r"""Plot the proven ``points``, pairs (delta, bound on epsilon), joined by lines."""
    above = [(b.upper_float, delta) for delta, b in points if b.upper < math.inf]
    if not above:
        reason = "must be finite at some delta: there is nothing to plot"
        raise InvalidParameter("epsilon", "infinity", reason)
    one = _is_one_line(points)
    label = "proven: both bounds lie within this line" if one else "proven upper bound"
    marked: dict[str, Any] = {"marker": "o", "markersize": 2.5, "linewidth": 1.0}
    axes.plot(*zip(*above, strict=True), color="black", label=label, **marked)
    known = [(b.lower_float, delta) for delta, b in points if b.lower_float is not None]
    below = [(lower, delta) for lower, delta in known if lower < math.inf]
    if below and not one:
        label = "proven lower bound: no smaller epsilon is possible"
        axes.plot(*zip(*below, strict=True), color="tab:red", label=label, **marked)


def plot(
    epsilon: Callable[[Fraction], Bound], axes: Axes | None, least: Fraction, count: int
) -> Axes:
    r"""Plot delta, on a logarithmic scale, over epsilon on ``axes`` or on a new figure."""
    axes = axes_or_new(axes)
    deltas = deltas_down_to(least, count)
    draw_curve(axes, [(float(delta), epsilon(delta)) for delta in deltas])
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(title="dots are proven, lines join them")
    return axes


def _is_one_line(points: Sequence[tuple[float, Bound]]) -> bool:
    ends = [(bound.lower_float, bound.upper_float) for _, bound in points]
    widest = max((upper for _, upper in ends if upper < math.inf), default=0.0)
    return all(
        lower is not None and (lower == upper or upper - lower <= _SEEN * widest)
        for lower, upper in ends
    )
