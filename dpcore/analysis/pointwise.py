r"""Floats rounded once from balls, one distinct integer at a time: slow, and true everywhere.

Laws fall back to this where no float formula with a proven error and no table of moderate size
serves them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from flint import arb

from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import narrow
from dpcore.numbers.floating import Floats

__all__ = ["pointwise"]

_BITS: Final = 60


def pointwise(k: Integers, value: Callable[[int], arb]) -> Floats:
    r"""``value(k)`` for every entry, relative error below 2^-51; each distinct k is found once.

    >>> pointwise(np.array([3, 0, 3]), lambda k: arb(k) / 4).tolist()
    [0.75, 0.0, 0.75]
    """
    distinct, places = np.unique(k, return_inverse=True)
    found = [float(narrow(partial(value, int(one)), _BITS).lower) for one in distinct]
    # + 0.0: the logarithm of a mass next to 1 may round to -0.
    floats: Floats = np.array(found, dtype=np.float64)[places.reshape(k.shape)] + 0.0
    return floats
