r"""Noise drawn as floats: which floats can come out depends on the data.

Source: Mironov, "On significance of the least significant bits for differential privacy" (2012).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure

__all__ = ["ENTRIES"]

_SCALE: Final = 16.0
_STEPS: Final = 8


def grid(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] in eighths, with exact noise in eighths: epsilon = 1/10. Outputs are
    integers/8, whatever the data.
    """
    steps = math.floor(amount * _STEPS + 0.5)
    return (steps + laplace(10 * _STEPS, n, rng)) / _STEPS


def float_laplace(amount: float, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""An amount in [0, 1] plus Laplace noise of scale 16 in double precision: on the reals that
    costs 1/16.

    1 + z is a multiple of 2^-53 for every float z: it is where \|z\| >= 1/2, and else 1 + z is at
    least 1/2 and is rounded to one. 0 + z is z, and below 1/2 most floats are not.
    """
    return amount + rng.laplace(scale=_SCALE, size=n)


ENTRIES: Final = (
    Entry(
        name="float-laplace",
        number=28,
        sentence="Laplace noise in floating point: the last bits of an output tell what the noise "
        "was added to.",
        source="Mironov 2012, on the least significant bits; most textbook samplers",
        run=float_laplace,
        pair=(0.0, 1.0),
        epsilon=Fraction(1, 10),
        true_epsilon=Enclosure.infinite(),
        runs=10_000,
        features=("lowest-bit",),
        twin=Twin(name="integer-laplace", run=grid, pair=(0.0, 1.0), epsilon=Fraction(1, 10)),
    ),
)
