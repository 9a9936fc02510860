r"""A catalogue entry: a broken mechanism, its correct twin, and how to distinguish them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.claims import Claim, CurveClaim
from dpcore import DiscreteLaplace, Enclosure, Relation, SeededRng
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import RationalLike

Runnable: TypeAlias = Callable[[Any, int, np.random.Generator], NDArray[Any]]
r"""The type of ``run(dataset, n, rng)``: n independent outputs along the first axis."""

Call: TypeAlias = Callable[[Any, np.random.Generator], object]
r"""The type of ``call(dataset, rng)``, which returns one output."""

_SEEDS: Final = 1 << 63


class Layer(Enum):
    r"""The layer of an audit that must detect the bug; a :class:`Subject` has what it needs.

    ``TIME`` samples call durations (``--feature time``); the outputs themselves satisfy the claim.
    """

    EXACT = "exact"
    FIT = "fit"
    REPLAY = "replay"
    SAMPLE = "sample"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    r"""A mechanism on two neighbouring datasets, and what it claims about them.

    ``pair`` are neighbours under ``relation``, as a command line would give them (JSON values). The
    claim is (``epsilon``, ``delta``)-DP. By default the datasets are 0 and 1, and the claim is
    epsilon = 1. ``curve`` is the text of a claimed curve that holds for the mechanism as described
    (``discrete-gaussian:sigma_squared=4@1``), if there is one. ``features`` are the features that
    show the error (``lowest-bit``); if empty, the outputs are tested. ``laws`` are the laws of the
    output on both datasets, in the format of ``dpcore audit exact``, if they have one. ``call``
    makes one run, with the law of ``run``; it is given if the time of a call can be measured.
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

    def claim(self, relation: Relation | str | None = None) -> Claim | CurveClaim:
        r"""The claim, its curve if it has one; by default under its own relation."""
        of = relation or self.relation
        if self.curve is not None:
            return CurveClaim(spelling=self.curve, relation=of)
        return Claim(epsilon=self.epsilon, delta=self.delta, relation=of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin(Subject):
    r"""The correct implementation, by default with the pair and the claim of its entry. Its claim
    holds for every pair and is nearly tight on its own pair.
    """

    pair: Any = None
    epsilon: Any = None
    delta: Any = None
    relation: Any = None
    curve: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Subject):
    r"""A broken mechanism: the bug, its privacy cost, its source, and the correct twin.

    ``true_epsilon`` encloses the smallest epsilon at which the outputs on ``pair`` are (epsilon,
    delta)-close in both directions, with the delta of the claim; ``Enclosure.infinite()`` if there
    is none, and for Skellam and Gaussian noise if there is none at delta = 0; for the layer
    ``TIME`` it does not exceed the claim. ``number`` is the fixed number of the entry. With
    ``runs`` runs (both datasets together), 95 of 100 audits at alpha = 0.05 refute the claim; for
    layers other than the sample layer, ``runs`` is a maximum and need not suffice.
    """

    number: int
    sentence: str
    source: str
    true_epsilon: Enclosure
    runs: int
    twin: Twin
    layer: Layer = Layer.SAMPLE

    def __post_init__(self) -> None:
        same = {
            name: getattr(self, name)
            for name in ("pair", "epsilon", "delta", "relation", "curve")
            if getattr(self.twin, name) is None
        }
        object.__setattr__(self, "twin", replace(self.twin, **same))


def seeded(rng: np.random.Generator) -> SeededRng:
    r"""A seeded stream of dpcore noise for simulations: reproducible, and not private."""
    return SeededRng(int(rng.integers(_SEEDS)))


def laplace(
    scale: RationalLike, shape: int | tuple[int, ...], rng: np.random.Generator
) -> Integers:
    r"""Exact discrete Laplace noise, so that an audit refutes only the deliberate bug."""
    return DiscreteLaplace(scale=scale).sample(shape, rng=seeded(rng))
