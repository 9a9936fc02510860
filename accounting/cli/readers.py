r"""Which reader checks a certificate: that of its schema, also where a sibling package has it.

A sibling names its reader in the group ``dpcore.certificates``, ``schema = "module:function"``: a
function of the text that answers with a ``Verdict`` and raises for nothing the text may hold. So
``dpcore verify`` reaches a sibling's certificates, and accounting imports none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final, TypeAlias

from accounting.checker import Malformed, Verdict, verify
from accounting.checker.fields import parsed

__all__ = ["GROUP", "Reader", "reader_of"]

GROUP: Final = "dpcore.certificates"
r"""The group of entry points."""

Reader: TypeAlias = Callable[[bytes], Verdict]
"""Checks the text of a certificate."""

_MOST_TEXT: Final = 1 << 22


def reader_of(text: bytes) -> Reader:
    r"""The reader of the schema that the text names; ``verify`` for any that nobody has.

    >>> reader_of(b'{"schema": "dpcore-certificate/1"}') is verify
    True
    """
    try:
        document = parsed(text, _MOST_TEXT)
    except Malformed:
        return verify
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str):
        for entry in entry_points(group=GROUP, name=schema):
            found: Reader = entry.load()
            return found
    return verify
