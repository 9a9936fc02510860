r"""Where a quantile about is, from the normal law: a start for a search that decides."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpcore.numbers.arrays import Integers
from dpcore.numbers.floating import Floats

__all__ = ["normal_guess"]


def normal_guess(p: Floats, variance: Fraction, skew: Fraction = Fraction(0)) -> Integers:
    r"""About the p-quantile of X - E[X] for a nearly normal X; ``skew`` is E[(X-E[X])^3]/Var[X].

    The first correction of Cornish and Fisher (1938). Nothing is proven, and nothing needs to be.

    >>> normal_guess(np.array([0.5, 0.975]), Fraction(400)).tolist()
    [0, 39]
    """
    from scipy.special import ndtri  # here, not above: importing dpcore stays fast

    z = ndtri(p)
    steps = np.ceil(math.sqrt(variance) * z + float(skew) * (z * z - 1) / 6 - 0.5)
    guess: Integers = steps.astype(np.int64)
    return guess
