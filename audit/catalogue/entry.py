r"""A catalogue entry: a broken mechanism, its correct twin, and how to distinguish them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcore import DiscreteLaplace, Enclosure, Relation, SeededRng
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import RationalLike

Runnable: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[Any]]
r"""``run(dataset, n, rng)``: n independent outputs along the first axis, one a run."""

Call: TypeAlias = Callable[[Any, np.random.Generator], object]
r"""``call(dataset, rng)``: one output."""

_SEEDS: Final = 1 << 63


class Layer(Enum):
    r"""The layer of an audit that must detect the bug; the fields give what each layer needs.

    ``TIME`` is a sample of how long calls take (``--feature time``): the outputs keep the claim.
    """

    EXACT = "exact"
    FIT = "fit"
    REPLAY = "replay"
    SAMPLE = "sample"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    r"""A mechanism on two neighbouring datasets, and what it claims about them.

    ``pair`` are neighbours under ``relation``, as a command line would give them (JSON values).
    The claim is (``epsilon``, ``delta``)-DP. An entry that names no pair and no claim has the
    datasets 0 and 1 and claims epsilon = 1. ``curve`` spells a whole claimed curve that holds of
    the mechanism as described (``discrete-gaussian:sigma_squared=4@1``), where there is one.
    ``features`` are those that show the slip (``lowest-bit``); the outputs themselves where empty.
    ``laws`` are those of the output on both datasets, as ``dpcore audit exact`` takes them, where
    they have a spelling. ``call`` gives one run at a time, by the law of ``run``, where its time
    can be measured.
    """

    name: str
    run: Runnable
    pair: tuple[Any, Any] = (0, 1)
    epsilon: Fraction = Fraction(1)
    delta: Fraction = Fraction(0)
    relation: Relation = Relation.REPLACE
    curve: str | None = None
    features: tuple[str, ...] = ()
    laws: tuple[str, str] | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Subject):
    r"""The correct implementation. Its claim holds for every pair and is nearly tight on its own
    pair.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Subject):
    r"""A broken mechanism: the bug, its privacy cost, its source, and the correct twin.

    ``true_epsilon`` encloses the smallest epsilon at which the outputs on ``pair`` are
    (epsilon, delta)-close in both directions, delta that of the claim; ``Enclosure.infinite()``
    where none is, and for Skellam and Gaussian noise where none is without delta; where ``layer``
    is ``TIME`` it is within the claim. ``number`` is
    the row of the catalogue in the audit chapter, ``runs`` how many runs (both datasets together)
    refute the claim at alpha = 0.05 in 95 cases of 100; where ``layer`` is not the sample they are
    what a sample may be given, and need not suffice.
    """

    number: int
    sentence: str
    source: str
    true_epsilon: Enclosure
    runs: int
    twin: Twin
    layer: Layer = Layer.SAMPLE


def seeded(rng: np.random.Generator) -> SeededRng:
    r"""A seeded stream of dpcore noise for simulations: reproducible, and not private."""
    return SeededRng(int(rng.integers(_SEEDS)))


def laplace(
    scale: RationalLike, shape: int | tuple[int, ...], rng: np.random.Generator
) -> Integers:
    r"""Exact discrete Laplace noise, so that an audit refutes only the deliberate bug."""
    return DiscreteLaplace(scale=scale).sample(shape, rng=seeded(rng))
