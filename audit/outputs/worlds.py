r"""The two worlds of an audit, drawn in a random order that no target can guess."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer


def draw_worlds(runs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    r"""Fair coins, True for world B: n0 ~ Bin(runs, 1/2) runs of A, the rest of B, permuted.

    >>> int(draw_worlds(1000, np.random.default_rng(7)).sum())
    500
    """
    count = integer("runs", runs, at_least=0)
    worlds = np.arange(count) >= rng.binomial(count, 0.5)
    return rng.permutation(worlds)


def interleave(
    world_a: ArrayLike, world_b: ArrayLike, worlds: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.generic]:
    r"""Outputs of a vectorised mechanism put in run order, each world's permuted first.

    >>> interleave([1, 1], [5], np.array([False, True, False]), np.random.default_rng(0)).tolist()
    [1, 5, 1]
    """
    side_a, side_b = np.asarray(world_a), np.asarray(world_b)
    in_b = int(np.count_nonzero(worlds))
    for name, side, runs in (("world_a", side_a, len(worlds) - in_b), ("world_b", side_b, in_b)):
        if len(side) != runs:
            raise InvalidParameter(name, len(side), f"must hold {runs} outputs, one a run")
    if side_a.shape[1:] != side_b.shape[1:] and len(side_a) and len(side_b):
        raise InvalidParameter(
            "world_b", side_b.shape[1:], f"must have outputs shaped {side_a.shape[1:]} as world A"
        )
    shape = (side_a if len(side_a) else side_b).shape[1:]
    joined = np.empty((len(worlds), *shape), dtype=np.result_type(side_a, side_b))
    joined[~worlds] = rng.permutation(side_a)
    joined[worlds] = rng.permutation(side_b)
    return joined
