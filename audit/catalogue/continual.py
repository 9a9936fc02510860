r"""Running sums of a stream: how many of the released numbers one event is in.

Sources: Dwork, Naor, Pitassi and Rothblum, "Differential Privacy under Continual Observation"
(2010); Chan, Shi and Song, "Private and Continual Release of Statistics" (2011). A tree over T
events has floor(log2 T) + 1 levels, and an event is in one node of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from audit.catalogue.entry import Entry, Twin, laplace
from dpcore import Enclosure
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import RationalLike

__all__ = ["ENTRIES", "FIRST_EVENT", "TREE", "tree"]

FIRST_EVENT: Final = ([0, 0, 0, 0], [1, 0, 0, 0])
r"""Four events, of which the first differs: it is in every sum, and in a node of every level."""


def prefix_sums(stream: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The sums of the first 1, 2, 3 and 4 events, each at epsilon = 1/4: scale 4."""
    return np.cumsum(stream) + laplace(4, (n, 4), rng)


def prefix_sums_alone(stream: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 1: each sum costs 1, and the first event is in all of them."""
    return np.cumsum(stream) + laplace(1, (n, 4), rng)


def tree(stream: Sequence[int], scale: RationalLike, n: int, rng: np.random.Generator) -> Integers:
    r"""The sums of the first 1, 2 and 4 of four events, the left nodes of the three levels."""
    return np.cumsum(stream)[[0, 1, 3]] + laplace(scale, (n, 3), rng)


def tree_sums(stream: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Nodes at epsilon = 1/3 each, for three levels: scale 3."""
    return tree(stream, 3, n, rng)


def tree_sums_unsplit(stream: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The same with scale 1: each level costs 1."""
    return tree(stream, 1, n, rng)


TREE: Final = Twin(name="tree-sums", run=tree_sums, pair=FIRST_EVENT)

ENTRIES: Final = (
    Entry(
        name="prefix-sums-alone",
        number=23,
        sentence="Four running sums of the same events each have noise for one release.",
        source="a dashboard that publishes a noisy total every day",
        run=prefix_sums_alone,
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(4),
        runs=1500,
        twin=Twin(name="prefix-sums", run=prefix_sums, pair=FIRST_EVENT),
    ),
    Entry(
        name="tree-unsplit",
        number=24,
        sentence="Sums over a binary tree have noise for one level each; an event is in one node "
        "of every level.",
        source="the binary mechanism without the division of epsilon among log T levels",
        run=tree_sums_unsplit,
        pair=FIRST_EVENT,
        true_epsilon=Enclosure.exactly(3),
        runs=1000,
        twin=TREE,
    ),
)
