"""An independent parser for the event text of a witness."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.report.figure_data import Histogram, histogram

_NUMBER = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf)"
_INTERVAL = re.compile(
    rf"(?:(?P<low>{_NUMBER}) (?P<above><=?) )?output(?: (?P<side>[<>]=?) (?P<end>{_NUMBER}))"
    r"(?: or |$)"
)
_SET = "output in {"


def in_event(event: str, outputs: Sequence[Any] | NDArray[Any]) -> NDArray[np.bool_]:
    """Which outputs of plain types lie in the event; raises ValueError for other text."""
    known: dict[tuple[type, str], bool] = {}
    found = np.empty(len(outputs), dtype=np.bool_)
    for i, output in enumerate(outputs):
        plain = output.item() if isinstance(output, np.generic) else output
        key = type(plain), _shown(plain)  # the arguments on which `holds` depends
        if (inside := known.get(key)) is None:
            inside = known[key] = holds(event, plain)
        found[i] = inside
    return found


def _worth(number: Any) -> tuple[Fraction | float, bool]:
    # -0.0 sorts before 0.0.
    if isinstance(number, float) and not math.isfinite(number):
        return number, True
    negative_zero = isinstance(number, float) and number == 0 and math.copysign(1, number) < 0
    return Fraction(number), not negative_zero


def _read(text: str) -> tuple[Fraction | float, bool]:
    return _worth(int(text) if re.fullmatch(r"-?\d+", text) else float(text))


def _shown(output: Any) -> str:
    if isinstance(output, np.ndarray):
        bare = output.dtype in {np.dtype("i8"), np.dtype("f8"), np.dtype("?")}
        return f"array({output.tolist()!r}{'' if bare else f', dtype={output.dtype}'})"
    if isinstance(output, (tuple, list)):
        parts = ", ".join(map(_shown, output))
        if isinstance(output, list):
            return f"[{parts}]"
        return f"({parts},)" if len(output) == 1 else f"({parts})"
    return repr(output)


def holds(event: str, output: Any) -> bool:
    """Whether one output of a plain type lies in the event."""
    number = type(output) in {int, float} and math.isfinite(output)
    rest, found = event, False
    while rest and not rest.startswith(_SET):
        match = _INTERVAL.match(rest)
        if match is None:
            raise ValueError(event)
        found |= number and between(match, output)
        rest = rest[match.end() :]
    if rest:
        label = _shown(output)
        for token in tokens(rest.removeprefix(_SET).removesuffix("}"), {label: 0}):
            if number and re.fullmatch(_NUMBER, token):
                found |= _read(token) == _worth(output)
            elif not number:
                found |= token == label
    return found


def between(match: re.Match[str], output: Any) -> bool:
    """Whether a number lies in one interval."""
    inside = compared(_worth(output), match["side"], _read(match["end"]))
    if match["low"] is not None:
        above = {"<": ">", "<=": ">="}[match["above"]]
        inside = inside and compared(_worth(output), above, _read(match["low"]))
    return inside


def compared(number: Any, sign: str, end: Any) -> bool:
    """Evaluate ``number sign end``."""
    signs: dict[str, bool] = {
        "<": number < end,
        "<=": number <= end,
        ">": number > end,
        ">=": number >= end,
    }
    return signs[sign]


def tokens(text: str, names: Mapping[str, object]) -> Iterator[str]:
    """Split "a, b, c", where a label may contain a comma: known labels come first."""
    start = 0
    while start < len(text):
        ends = [m.start() for m in re.finditer(", ", text) if m.start() > start] + [len(text)]
        known = [end for end in ends if text[start:end] in names]
        end = max(known, default=ends[0])
        yield text[start:end]
        start = end + len(", ")


def spans(event: str, *, whole: bool) -> list[tuple[float, float]]:
    """The numbers in the event, low <= x < high; ``whole`` numbers up to the next integer."""
    found = []
    intervals, _, values = event.partition(_SET)
    for match in _INTERVAL.finditer(intervals):
        ends = [(match["side"], float(match["end"]))]
        if match["low"] is not None:
            ends.append(({"<": ">", "<=": ">="}[match["above"]], float(match["low"])))
        low, high = -math.inf, math.inf
        for sign, end in ends:
            behind = end + (whole and sign in {">", "<="})
            low, high = (behind, high) if sign[0] == ">" else (low, behind)
        found.append((low, high))
    listed = values.removesuffix("}").split(", ")
    numbers = [float(text) for text in listed if re.fullmatch(_NUMBER, text)]
    return [*found, *((number, number + whole) for number in numbers)]


def worded(
    outputs: Any, worlds: Any, event: str | None, *, feature: str | None = None
) -> Histogram:
    """The histogram of an event given as text."""
    if event is None:
        return histogram(outputs, worlds, feature=feature)
    whole = all(isinstance(x, (int, float, np.number)) and x == np.rint(x) for x in outputs)
    inside = in_event(event, outputs)
    told = spans(event, whole=whole)
    return histogram(outputs, worlds, event, inside, told, feature=feature)
