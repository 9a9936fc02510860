r"""delta(epsilon) of two known laws as a picture, both directions.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from audit.exact.divergence import AnyLaw
from audit.exact.points import Point, delta_point, epsilon_point
from dpcore.command.picture import curve_picture
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.enclosure import Enclosure, round_down, round_up

_POINTS: Final = 61
_SEEN: Final = 1e-15
"""What is smaller is left out: beside it all else would be one line."""
_LEAST_DELTA: Final = Fraction(1, 10**9)
_LAST: Final = 40


def curve_points(p: AnyLaw, q: AnyLaw) -> tuple[Point, ...]:
    r"""delta at evenly spaced epsilons, from 0 to where a direction is 0 or about 1e-9.

    >>> points = curve_points({"a": "3/4", "b": "1/4"}, {"a": "1/4", "b": "3/4"})
    >>> len(points), points[0].worse.lower_float, points[-1].worse.upper_float < 0.02
    (61, 0.5, True)
    """
    end = _end(p, q)
    return tuple(delta_point(p, q, end * i / (_POINTS - 1)) for i in range(_POINTS))


def _end(p: AnyLaw, q: AnyLaw) -> Fraction:
    # A round number near it: epsilons of a picture have few digits. Nothing rests on it.
    for delta in (Fraction(), _LEAST_DELTA):
        try:
            found = epsilon_point(p, q, delta)
        except PrecisionExhausted:
            continue
        ends = [way.upper for way in (found.p_against_q, found.q_against_p) if way is not None]
        largest = max((end for end in ends if end < math.inf), default=0)
        if largest > 0:
            return Fraction(f"{min(float(largest), _LAST):.2g}")
    return Fraction(_LAST, 8)


def draw_curve(path: Path, points: tuple[Point, ...], *, title: str) -> None:
    r"""Both directions of delta over epsilon, delta on a logarithmic axis from 1e-15 on.

    Raises :class:`InvalidParameter` when every delta is smaller, or the file cannot be written.
    """
    ways = {
        "P against Q": [(x.at, x.p_against_q) for x in points if x.p_against_q is not None],
        "Q against P": [(x.at, x.q_against_p) for x in points if x.q_against_p is not None],
    }
    shown = {label: list(_visible(way)) for label, way in ways.items()}
    if not any(shown.values()):
        raise InvalidParameter("--plot", str(path), "every delta is below 1e-15: nothing to draw")
    styles: tuple[dict[str, Any], ...] = (
        {"color": "black", "marker": "o", "markersize": 4.0, "linewidth": 1.6},
        {"color": "tab:red", "marker": "o", "markersize": 2.0, "linewidth": 0.8},
    )
    with curve_picture("--plot", path, title=title) as axes:
        for (label, dots), style in zip(shown.items(), styles, strict=True):
            if dots:
                epsilons, lowers, uppers = zip(*dots, strict=True)
                axes.plot(epsilons, uppers, label=label, **style)
                axes.fill_between(epsilons, lowers, uppers, color=style["color"], alpha=0.3)


def _visible(
    way: list[tuple[Fraction | float, Enclosure]],
) -> Iterator[tuple[float, float, float]]:
    # What a logarithmic axis can show; an enclosure may begin below it.
    for at, found in way:
        if found.upper > _SEEN:
            yield float(at), max(round_down(found.lower), _SEEN), round_up(found.upper)
