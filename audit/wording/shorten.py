r"""Long texts made short enough to show: the part that tells them apart stays, and the length.

Nothing here decides anything: outputs are compared whole, and the whole text is in the data.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["cut", "distinct", "shortened"]

_MOST: Final = 400
_DIGEST: Final = 12
_HEAD: Final = 8
_FEWEST: Final = 6
_MEASURED: Final = 400
r"""No longer text fits anywhere: its width is not worth computing."""


def shortened(text: str, most: int = _MOST) -> str:
    r"""Shorten a text to its first ``most`` signs, with its length and the start of its SHA-256.

    >>> shortened("abc", 3), shortened("a" * 5_000_000, 4)
    ('abc', 'aaaa... (5,000,000 characters, SHA-256 7f4a28519357)')
    """
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} characters, SHA-256 {_digest(text)[:_DIGEST]})"


def cut(text: str, most: int) -> str:
    r"""The beginning of a text that is longer than ``most`` signs, with three dots at its end.

    >>> cut("[1, 2, 3, 4]", 8), cut("[1, 2]", 8)
    ('[1, 2...', '[1, 2]')
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def distinct(texts: Sequence[str], fits: Callable[[str], bool]) -> list[str]:
    r"""Each text shortened until it ``fits``; texts that differ stay different.

    What fits is left as it is. Of the others the first signs are kept, and those around the place
    where a text parts from the one most like it; where that does not tell them apart, a digest.

    >>> distinct(["(1, 1, 1, 1, 1, 0)", "(1, 1, 1, 1, 1, 2)", "x"], lambda text: len(text) <= 12)
    ['(1,…1, 1, 0)', '(1,…1, 1, 2)', 'x']
    """
    order = sorted(set(texts))
    parts: dict[str, int] = {}
    for before, after in itertools.pairwise(order):
        common = _common(before, after)
        parts[before] = max(parts.get(before, 0), common)
        parts[after] = max(parts.get(after, 0), common)
    found = {text: _fitting(text, parts.get(text, 0), fits) for text in order}
    shown = list(found.values())
    return [found[text] if shown.count(found[text]) == 1 else _signed(text, fits) for text in texts]


def _fitting(text: str, part: int, fits: Callable[[str], bool]) -> str:
    # The most signs that fit, by halving: a longer cut of one text is a wider one.
    if len(text) <= _MEASURED and fits(text):
        return text
    low, high = _FEWEST, min(len(text), _MEASURED)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(_cut(text, part, middle)) else (low, middle)
    return _cut(text, part, low)


def _cut(text: str, part: int, signs: int) -> str:
    # The first signs, and a window that has the place of ``part`` in its last third.
    head = min(_HEAD, signs // 3)
    window = signs - head
    start = max(part - (2 * window) // 3, 0)
    end = min(start + window, len(text))
    start = end - window
    if start <= head:
        return f"{text[:signs]}…"
    return f"{text[:head]}…{text[start:end]}" + ("" if end == len(text) else "…")


def _signed(text: str, fits: Callable[[str], bool]) -> str:
    # Told apart by the digest alone, before which stand as many first signs as fit.
    signs = 2 * _HEAD
    while signs and not fits(f"{text[:signs]}…#{_digest(text)[:_FEWEST]}"):
        signs -= 1
    return f"{text[:signs]}…#{_digest(text)[:_FEWEST]}"


def _common(one: str, other: str) -> int:
    # The length of the common start, by halving: comparing slices is fast, signs one by one not.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
