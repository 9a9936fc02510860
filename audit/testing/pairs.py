r"""Read pairs of datasets from an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpcore.errors import InvalidParameter

__all__ = ["read_pairs"]


def read_pairs(argument: str, pairs: Iterable[Any]) -> tuple[tuple[Any, Any], ...]:
    r"""Pairs of datasets, one at least.

    >>> read_pairs("pairs", [[0, 1]])
    ((0, 1),)
    """
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
        raise InvalidParameter(argument, pairs, "must be pairs of datasets, e.g. [(0, 1)]")
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidParameter(argument, pair, "must be pairs of datasets, e.g. [(0, 1)]")
        found.append((pair[0], pair[1]))
    if not found:
        raise InvalidParameter(argument, "[]", "needs one pair of datasets at least")
    return tuple(found)
