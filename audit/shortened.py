r"""Long values where they are shown: the beginning, and what tells them from others of it."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["shortened"]

_MOST: Final = 400
_KEPT: Final = 160


def shortened(text: str) -> str:
    r"""Shorten a text for a report: its beginning, with its length and the start of its SHA-256.

    Only what is shown is shortened. Outputs are compared whole.

    >>> shortened("3.5")
    '3.5'
    >>> shortened("x" * 1000)[-52:]
    'xxxx... (1,000 characters, SHA-256 44f8354494a5ba03)'
    """
    if len(text) <= _MOST:
        return text
    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    return f"{text[:_KEPT]}... ({len(text):,} characters, SHA-256 {digest[:16]})"
