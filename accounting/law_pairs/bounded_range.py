r"""A choice whose losses lie in an interval of length epsilon, such as an exponential mechanism.

The interval [t - epsilon, t] is unknown. For any t the ratio dP/dQ is largest on two points, and
the supremum over t of the hockey-stick divergences is

    H(x) = (1 - sqrt(x e^-epsilon))^2/(1 - e^-epsilon),    x in [e^-epsilon, e^epsilon].

A convex curve that lies above H is that of a pair which dominates every such choice. Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

from flint import arb, ctx

from accounting.pairs.finite import FinitePair, Listed
from dpcore.numbers.enclosure import ball

_NODES: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRangePair(FinitePair):
    r"""The pair whose curve joins points of H: its losses are equally spaced in +-``length``."""

    length: Fraction

    def listed(self) -> Listed:
        r"""The losses and their masses, from the slopes of the lines between points of H."""
        return _listed(self.length, ctx.prec)


@lru_cache(maxsize=32)
def _listed(epsilon: Fraction, bits: int) -> Listed:
    del bits
    whole = -ball(-epsilon).expm1()
    losses = [epsilon * Fraction(2 * i - _NODES, _NODES) for i in range(_NODES + 1)]
    nodes = [ball(loss).exp() for loss in losses]
    heights = [ball((loss - epsilon) / 2).expm1() ** 2 / whole for loss in losses]
    lines = zip(pairwise(heights), pairwise(nodes), strict=True)
    slopes = [(b - a) / (y - x) for (a, b), (x, y) in lines]
    masses = [right - left for left, right in pairwise([arb(-1), *slopes, arb(0)])]
    return tuple((loss, x * q, q) for loss, x, q in zip(losses, nodes, masses, strict=True))
