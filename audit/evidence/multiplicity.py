r"""Which of many tests may be believed, so that all of them together err with probability alpha.

Proofs: ``docs/proofs/family.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from audit.evidence.event import Floats

__all__ = ["by_averages", "holm"]

# More than the rounding of the logarithms and exponentials here.
_ROUNDING: Final = 2.0**-40


def holm(p_values: Sequence[float]) -> list[float]:
    r"""The adjusted p-values: those at most alpha may be rejected, P(a false one) <= alpha.

    The k-th smallest of m is multiplied by m - k + 1 and is no smaller than the one before (Holm
    1979). Rounded up; nothing is asked of how the tests depend on each other.

    >>> holm([0.25, 0.01]), holm([0.03])
    ([0.25, 0.020000000000000004], [0.03])
    """
    adjusted, least = [1.0] * len(p_values), 0.0
    for before, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        factor = len(p_values) - before
        product = p_values[i] * factor
        least = max(least, math.nextafter(product, math.inf) if factor > 1 else product)
        adjusted[i] = min(1.0, least)
    return adjusted


def by_averages(log_wealth: Floats) -> Floats:
    r"""For each e-value the least mean of a set that holds it, as logarithms.

    Those of at least 1/alpha may be rejected, P(a false one) <= alpha (Vovk and Wang 2021, section
    5): a set of hypotheses that all hold has a mean that reaches 1/alpha so rarely. Rounded down.

    >>> np.exp(by_averages(np.log([80.0, 10.0, 1e-9]))).round(3).tolist()
    [30.0, 5.0, 0.0]
    """
    top = float(log_wealth.max())
    if top == -math.inf:
        return log_wealth
    wealth = np.exp(log_wealth - top)
    order = np.argsort(wealth, kind="stable")
    rising, sizes = wealth[order], np.arange(1, len(wealth) + 1)
    least = np.empty(len(wealth))
    for place, i in enumerate(order):
        # Of all sets of one size, the one with the least others has the least mean.
        others = np.concatenate(([0.0], np.cumsum(np.delete(rising, place))))
        least[i] = ((wealth[i] + others) / sizes).min()
    with np.errstate(divide="ignore"):
        found: Floats = np.log(least) + top - _ROUNDING
    return found
