r"""Uniformly random orders of n things, exactly: to shuffle bits, and to seat users on a circle.

Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

import numpy as np

from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import Rng


def permutation(count: int, rng: Rng) -> Integers:
    r"""A uniformly random order of 0 .. count-1: the order of independent uniform 64-bit keys.

    Distinct keys come in every order equally often. If two are equal (chance below
    count^2/2^65) all are drawn again, so the order is exactly uniform.

    >>> from dpcore.sampling.rng import SYSTEM
    >>> sorted(permutation(5, SYSTEM).tolist())
    [0, 1, 2, 3, 4]
    """
    while True:
        keys = rng.words(count)
        order: Integers = np.argsort(keys)
        ranked = keys[order]
        if not bool((ranked[1:] == ranked[:-1]).any()):
            return order
