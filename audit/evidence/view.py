r"""A view: what one feature shows of the runs of one pair, and its part of a family's level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from audit.claims.verdicts import Layer
from audit.evidence.outcome import Outcome
from audit.evidence.verdict import ANYTIME
from audit.learn.additive import Score
from audit.outputs.form import Outputs

__all__ = ["View", "excess", "layer_of", "parts_of", "view_seeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    r"""What one feature shows of the runs of one pair, in run order.

    ``pair`` is the place of the pair in the audit's list, ``feature`` the feature's name, None for
    the outputs themselves. ``weight`` is its part of the level beside the others. Of a learned
    feature ``outputs`` are scores, each by a model that only earlier blocks taught, in blocks that
    end where those of the test do; ``models`` are these by the number of runs that taught them, and
    ``first(runs)`` gives the scores of an audit of so many runs.
    """

    pair: int = 0
    feature: str | None = None
    outputs: Outputs
    worlds: NDArray[np.bool_]
    weight: Fraction = Fraction(1)
    models: Mapping[int, Score] | None = None
    first: Callable[[int], Outputs] | None = field(default=None, compare=False, repr=False)


def parts_of(weights: Sequence[Fraction]) -> list[Fraction]:
    r"""The part of the level of each view; they sum to 1.

    >>> parts_of([Fraction(1), Fraction(3)])
    [Fraction(1, 4), Fraction(3, 4)]
    """
    return [weight / sum(weights, Fraction(0)) for weight in weights]


def excess(outcome: Outcome) -> float:
    r"""How far the bound of a test lies above its claim."""
    return outcome.epsilon_lower - float(outcome.claim.exact[0])


def layer_of(alone: Layer, tests: int) -> Layer:
    r"""The layer of one test, or of so many that share their level."""
    if tests == 1:
        return alone
    shared = "mean of the wealths" if alone is ANYTIME else "Holm's method"
    return replace(alone, method=f"{alone.method}; {shared} of {tests} tests")


def view_seeds(seed: int, views: int) -> list[int]:
    r"""Of each view, the seed of the coins that make its p-values exact.

    That of the first is the one of an audit that has no other.

    >>> view_seeds(7, 2)[0]
    7
    """
    return [seed] + [
        int(np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(1, np.uint64)[0])
        for i in range(1, views)
    ]
