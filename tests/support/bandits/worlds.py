"""Helpers for tests of policies: seeded runs, fixed widths, and a world that counts its draws."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy import stats

from bandits.batch import Pulls, Released
from bandits.elimination_radii import Radius
from bandits.play import Run, play
from bandits.policies.policy import Choice, Policy
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.worlds.arm_environments import Bernoulli, Environment
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import SeededRng

T = TypeVar("T")

Pulled: TypeAlias = tuple[int, ...]
"""The pulls of every arm."""


def not_none(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def played(
    policy: Policy[Any],
    world: Environment | tuple[float, ...],
    horizon: int,
    *,
    seed: int = 1,
    **given: Any,
) -> Run:
    """A run with rewards and noise from ``seed``, among Bernoulli arms if ``world`` has means."""
    if isinstance(world, tuple):
        world = Bernoulli(means=world)
    coins = {"world": np.random.default_rng(seed), "rng": SeededRng(seed)}
    return play(policy, world, horizon=horizon, **{**coins, **given})


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Radius):
    """The same width for every batch."""

    beta: float

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        return self.beta


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Environment):
    """Bernoulli arms that record every draw: (arm, pulls, precision)."""

    of: Bernoulli
    drawn: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def means(self) -> tuple[float, ...]:
        return self.of.means

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        self.drawn.append((arm, pulls, precision))
        return self.of.encoded_sum(arm, pulls, precision, world)


@dataclass(frozen=True, kw_only=True)
class Script(Policy[tuple[int, ...]]):
    """Asks for given batches, and records how many sums it received; may name other sizes."""

    batches: tuple[Choice, ...]
    privatizer: Privatizer = Unprotected()  # noqa: RUF009  # a frozen value
    said: tuple[int, ...] | None = None
    name: str = "script"

    def init(self, arms: int, horizon: int) -> tuple[int, ...]:
        return ()

    def choose(self, state: tuple[int, ...]) -> Choice:
        return self.batches[len(state)]

    def observe(self, state: tuple[int, ...], released: Released) -> tuple[int, ...]:
        return (*state, sum(total is not None for total in released.sums))

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        pulls = [batch for batch in self.batches if isinstance(batch, Pulls)]
        asked = tuple({count for batch in pulls for count in batch.counts if count})
        return asked if self.said is None else self.said


def same_law(one: Counter[Pulled], other: Counter[Pulled]) -> float:
    """The p-value of the chi-squared test that two counts have the same law."""
    keys = sorted({*one, *other}, key=repr)
    table = np.array([[count[key] for key in keys] for count in (one, other)])
    table = table[:, table.sum(axis=0) >= 20]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table).pvalue)
