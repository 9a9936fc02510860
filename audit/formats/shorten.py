r"""Shorten long texts for display, and keep different texts distinguishable.

Outputs are compared in full, and the JSON report contains the full texts.
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

_MOST: Final = 400
_DIGEST: Final = 12
_HEAD: Final = 8


def shortened(text: str, most: int = _MOST) -> str:
    r"""Replace a longer text by its first ``most`` characters, its length and a SHA-256 prefix."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} characters, SHA-256 {_digest(text)})"


def cut(text: str, most: int) -> str:
    r"""Cut a longer text to ``most`` characters, the last three of which are dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(value: str) -> str:
    r"""Replace characters that are invisible, reorder others, or cannot be in HTML by U+FFFD."""
    hidden = {ord(sign): "\ufffd" for sign in set(str.__iter__(value)) if not _has_place(sign)}
    return str.translate(value, hidden)


def _has_place(sign: str) -> bool:
    # Of the format characters, only the two joiners are kept: scripts and emoji need them.
    if sign in "\n\t\u200c\u200d":
        return True
    hidden = unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not hidden and ord(sign) & 0xFFFE != 0xFFFE and not "\ufdd0" <= sign <= "\ufdef"


def distinct(texts: Sequence[str], most: int) -> list[str]:
    r"""Cut each text to at most ``most`` >= 12 characters such that different texts stay different.

    A long text keeps its beginning, and a part around the first difference from the most similar
    other text. If two shortened texts are then equal, both end in a digest instead.
    """
    order = sorted(set(texts))
    parts = dict.fromkeys(order, 0)
    for before, after in itertools.pairwise(order):
        common = _common(before, after)
        parts[before], parts[after] = max(parts[before], common), max(parts[after], common)
    found = {text: _excerpt(text, parts[text], most) for text in order}
    shortened_texts = list(found.values())
    return [
        found[text]
        if shortened_texts.count(found[text]) == 1
        else f"{text[: most - _HEAD]}…#{_digest(text)[: _HEAD - 2]}"
        for text in texts
    ]


def _excerpt(text: str, part: int, most: int) -> str:
    # The first characters of the text, and a window whose last third contains position ``part``.
    if len(text) <= most:
        return text
    head = min(_HEAD, (most - 1) // 3)
    window = most - 1 - head
    end = min(max(part - 2 * window // 3, 0) + window, len(text))
    if end < len(text):
        window, end = window - 1, end - 1
    if end - window <= head:
        return f"{text[: most - 1]}…"
    return f"{text[:head]}…{text[end - window : end]}" + ("" if end == len(text) else "…")


def _common(one: str, other: str) -> int:
    # The length of the common prefix, by bisection: comparing slices is faster than comparing
    # characters.
    places = range(min(len(one), len(other)))
    return bisect_left(places, 1, key=lambda k: int(one[: k + 1] != other[: k + 1]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
