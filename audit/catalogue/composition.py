r"""Releases that are each private and were never added up."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure
from dpcore.inversion import Integers

__all__ = ["ENTRIES"]


def visits_composed(bit: int, n: int, rng: np.random.Generator) -> Integers:
    r"""One user's bit counted in two batches, each at epsilon = 1/2: together 1."""
    return bit + laplace(2, (n, 2), rng)


def visits(bit: int, n: int, rng: np.random.Generator) -> Integers:
    r"""The same with each batch at epsilon = 1."""
    return bit + laplace(1, (n, 2), rng)


ENTRIES: Final = (
    Entry(
        name="returning-user",
        number=20,
        sentence="A user who comes back is in two batches; each costs 1 and the claim counts one.",
        source="bandits and telemetry that account for a batch and not for a user",
        run=visits,
        pair=(0, 1),
        epsilon=Fraction(1),
        true_epsilon=Enclosure.exactly(2),
        runs=1000,
        twin=Twin(
            name="returning-user-composed", run=visits_composed, pair=(0, 1), epsilon=Fraction(1)
        ),
    ),
)
