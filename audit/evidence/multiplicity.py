r"""How tests share a level, so that all of them together err with probability alpha.

Proofs: ``docs/proofs/confidence.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from audit.evidence.event import Floats
from dpcore.numbers.enclosure import round_up

PART: Final = Fraction(4, 5)
r"""What the leader of a pair takes of the level of every view of that pair."""

# More than the rounding of the logarithms and exponentials here.
_ROUNDING: Final = 2.0**-40


def holm(p_values: Sequence[float], shares: Sequence[Fraction] | None = None) -> list[float]:
    r"""The adjusted p-values: those at most alpha may be rejected, P(a false one) <= alpha.

    ``shares`` say how much of the level each test has (all alike where they are left out). In the
    order of p/share each is multiplied by the shares of those not before it over its own, and is no
    smaller than the one before (Holm 1979): with equal shares the k-th smallest of m by m - k + 1.
    Rounded up; nothing is asked of how the tests depend on each other.

    >>> holm([0.25, 0.01]), holm([0.03])
    ([0.25, 0.020000000000000004], [0.03])
    >>> holm([0.25, 0.01], [Fraction(4, 5), Fraction(1, 5)])
    [0.25, 0.05000000000000001]
    """
    each = [Fraction(1)] * len(p_values) if shares is None else list(shares)
    adjusted, least, left = [1.0] * len(p_values), 0.0, sum(each, Fraction(0))
    for i in sorted(range(len(p_values)), key=lambda i: p_values[i] / float(each[i])):
        factor = left / each[i]
        product = p_values[i] * round_up(factor)
        least = max(least, math.nextafter(product, math.inf) if factor > 1 else product)
        adjusted[i] = min(1.0, least)
        left -= each[i]
    return adjusted


def by_averages(log_wealth: Floats, shares: Sequence[Fraction] | None = None) -> Floats:
    r"""For each e-value the least mean of a set that holds it, as logarithms.

    Those of at least 1/alpha may be rejected, P(a false one) <= alpha (Vovk and Wang 2021, section
    5): a set of hypotheses that all hold has a mean that reaches 1/alpha so rarely. The means weigh
    each by its share, all alike where these are left out. Rounded down.

    >>> np.exp(by_averages(np.log([80.0, 10.0, 1e-9]))).round(3).tolist()
    [30.0, 5.0, 0.0]
    """
    top = float(log_wealth.max())
    if top == -math.inf:
        return log_wealth
    wealth = np.exp(log_wealth - top)
    weights = np.ones(len(wealth)) if shares is None else np.array([float(x) for x in shares])
    order = np.argsort(wealth, kind="stable")
    rising, sizes = (wealth * weights)[order], weights[order]
    least = np.empty(len(wealth))
    for place, i in enumerate(order):
        # A mean falls by each further one below it: the set with the least mean has, beside i, the
        # least others, up to some place.
        others = np.concatenate(([0.0], np.cumsum(np.delete(rising, place))))
        counts = np.concatenate(([0.0], np.cumsum(np.delete(sizes, place))))
        least[i] = ((weights[i] * wealth[i] + others) / (weights[i] + counts)).min()
    with np.errstate(divide="ignore"):
        found: Floats = np.log(least) + top - _ROUNDING
    return found


def parts_of(
    weights: Sequence[Fraction], pairs: Sequence[int] = (), led: Sequence[int] = ()
) -> list[Fraction]:
    r"""The parts of the level of views with these ``weights``, and then of the leaders of the pairs
    ``led``, each of which has four fifths of what the views of its pair have without it. They sum
    to 1; ``pairs`` are those of the views.
    """
    parts = [weight / sum(weights, Fraction(0)) for weight in weights]
    taken = [PART * part if pair in led else Fraction(0)
             for part, pair in zip(parts, pairs or [0] * len(parts), strict=True)]  # fmt: skip
    left = [part - each for part, each in zip(parts, taken, strict=True)]
    return left + [
        sum((each for each, own in zip(taken, pairs, strict=True) if own == pair), Fraction(0))
        for pair in led
    ]


def view_seeds(seed: int, views: int) -> list[int]:
    r"""Of each view, the seed of the coins that make its p-values exact.

    That of the first is the one of an audit that has no other.
    """
    return [seed] + [
        int(np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(1, np.uint64)[0])
        for i in range(1, views)
    ]
