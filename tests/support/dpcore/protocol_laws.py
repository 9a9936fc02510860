r"""Laws of sums of independent variables, by plain convolution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any


def summed(laws: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    r"""Return the law of the sum of independent variables; exact for rational masses."""
    total: dict[Any, Any] = {0: 1}
    for law in laws:
        longer: dict[Any, Any] = defaultdict(int)
        for (i, p), (j, q) in product(total.items(), law.items()):
            longer[i + j] += p * q
        total = dict(longer)
    return total
