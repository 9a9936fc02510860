r"""Gaussian noise of the wrong variance."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, seeded
from dpcore import DiscreteGaussian, Enclosure
from dpcore.numbers.arrays import Integers

__all__ = ["ENTRIES"]

_EPSILON: Final = Fraction("2.02")
_DELTA: Final = Fraction("1e-5")
_CURVE: Final = "discrete-gaussian:sigma_squared=4@1"


def gaussian_of_four(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""A count plus discrete Gaussian noise of sigma^2 = 4: (2.02, 1e-5)."""
    return value + DiscreteGaussian(sigma_squared=4).sample(n, rng=seeded(rng))


def gaussian_of_two(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with sigma^2 = 2: the deviation 2 was passed where its square belongs."""
    return value + DiscreteGaussian(sigma_squared=2).sample(n, rng=seeded(rng))


ENTRIES: Final = (
    Entry(
        name="sigma-for-its-square",
        number=30,
        sentence="The deviation 2 is passed where the variance 4 belongs: at delta = 1e-5 epsilon "
        "is 2.942.",
        source="samplers that take sigma in one library and sigma squared in another",
        run=gaussian_of_two,
        epsilon=_EPSILON,
        delta=_DELTA,
        curve=_CURVE,
        # At delta = 1e-5.
        true_epsilon=Enclosure(Fraction("2.942006"), Fraction("2.942007")),
        # At the point. On the curve 10,000 are enough.
        runs=1_000_000,
        twin=Twin(
            name="gaussian-of-four",
            run=gaussian_of_four,
            epsilon=_EPSILON,
            delta=_DELTA,
            curve=_CURVE,
        ),
    ),
)
