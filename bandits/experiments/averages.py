r"""Means over runs with their standard errors, and the ratio of two of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["mean_and_error", "paired_ratio"]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    r"""The mean and its standard error, s/sqrt(n); None where one value says nothing of it.

    >>> mean_and_error((1.0, 3.0)), mean_and_error((2.0,))
    ((2.0, 1.0), (2.0, None))
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (count - 1) / count)


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float | None]:
    r"""R = mean(a)/mean(b) of n pairs and, to first order, its error sd(a_i - R b_i)/(sqrt(n) b).

    The mean below is > 0; the error is None for one pair.

    >>> paired_ratio((1.0, 2.0, 3.0), (2.0, 4.0, 6.0))
    (0.5, 0.0)
    """
    mean, _ = mean_and_error(below)
    ratio = mean_and_error(above)[0] / mean
    _, left = mean_and_error([a - ratio * b for a, b in zip(above, below, strict=True)])
    return ratio, None if left is None else left / mean
