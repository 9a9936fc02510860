"""Certified widths cover: a run in which some released mean is too far off is no likelier than p.

Runs are short and full of noise, and rewards skewed, so the bounds are nearly reached: a radius of
0.7 of the width is caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bandits.batch import Commit, Released
from bandits.policies.elimination import BatchedElimination
from bandits.policies.setting import Schedule
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer, Trust
from bandits.radius.radius import ExactRadius, Radius
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import SeededRng
from tests.effort import by_day
from tests.purse import purse

MEANS = (0.02, 0.9)
P = Fraction(1, 5)
RUNS = 600
BATCHES = 2

Errors: TypeAlias = npt.NDArray[np.float64]


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/10", failure="1e-3")


PRIVATIZERS: dict[str, Privatizer] = {
    "central": summed("central"),
    "local": summed("local"),
    "pure": summed("pure"),
    "renyi": summed("renyi"),
    "concentrated": summed("concentrated"),
    "shuffled-pure": summed("shuffled-pure"),
    "binary-shuffle": BitPrivatizer(epsilon="1/10", delta="1e-3"),
}

each_trust = pytest.mark.parametrize("trust", PRIVATIZERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow(Radius):
    """A part of the certified width, with nothing to show for it."""

    name: ClassVar[str] = "narrow"

    part: float

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        exact = ExactRadius(batches=BATCHES)
        return self.part * exact.width(
            privatizer, pulls, batch=batch, active=active, failure=failure
        )

    def gap(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        exact = ExactRadius(batches=BATCHES)
        return self.part * exact.gap(privatizer, pulls, batch=batch, active=active, failure=failure)


POLICY_OF = {
    trust: BatchedElimination(
        privatizer=privatizer,
        schedule=Schedule(first=8, growth=2),
        radius=ExactRadius(batches=BATCHES),
        confidence=P,
    )
    for trust, privatizer in PRIVATIZERS.items()
}


@cache
def played(trust: str) -> Errors:
    """How far each released mean is off, of shape (runs, batches, arms); nan where none was."""
    policy, horizon = POLICY_OF[trust], 10**6
    world, rng = np.random.default_rng(6), SeededRng(600 + list(PRIVATIZERS).index(trust))
    off = np.full((RUNS, BATCHES, len(MEANS)), np.nan)
    for run in off:
        state = policy.init(len(MEANS), horizon)
        for batch in run:
            choice = policy.choose(state)
            if isinstance(choice, Commit):
                break
            sums = []
            for arm, pulls in enumerate(choice.counts):
                steps = int(world.binomial(pulls, MEANS[arm])) * policy.privatizer.precision(pulls)
                sums.append(policy.privatizer.release(steps, pulls, rng))
                batch[arm] = float(sums[-1] / pulls) - MEANS[arm]
            state = policy.observe(state, Released(tuple(sums)))
    return off


def failures(trust: str, radius: Radius, *, of: Literal["width", "gap"]) -> int:
    """The runs in which some mean, or some difference of two, is farther off than it may be."""
    policy, failed = POLICY_OF[trust], np.zeros(RUNS, dtype=bool)
    for batch in range(1, BATCHES + 1):
        off, pulls = played(trust)[:, batch - 1], policy.schedule.pulls(batch)
        rule = radius.width if of == "width" else radius.gap
        most = rule(policy.privatizer, pulls, batch=batch, active=len(MEANS), failure=P)
        far = np.abs(off if of == "width" else off[:, :1] - off[:, 1:]) > most
        failed |= far.any(axis=1)  # nan is never far
    return int(failed.sum())


def too_many(failed: int) -> float:
    return float(stats.binomtest(failed, RUNS, float(P), alternative="greater").pvalue)


@by_day(2)
@each_trust
def test_all_means_of_a_run_are_within_their_widths(trust: str) -> None:
    alpha = purse.buy(f"bandits coverage of widths: {trust}", "1e-9")
    assert too_many(failures(trust, ExactRadius(batches=BATCHES), of="width")) > alpha
    assert too_many(failures(trust, Narrow(part=0.7), of="width")) < alpha


@by_day(2)
@each_trust
def test_all_differences_of_a_run_are_within_their_gaps(trust: str) -> None:
    alpha = purse.buy(f"bandits coverage of gaps: {trust}", "1e-9")
    assert too_many(failures(trust, ExactRadius(batches=BATCHES), of="gap")) > alpha
    assert too_many(failures(trust, Narrow(part=0.7), of="gap")) < alpha


@pytest.mark.nightly
def test_the_second_batch_is_there_often_enough_to_count() -> None:
    for trust in PRIVATIZERS:
        first, second = (played(trust)[:, batch] for batch in (0, 1))
        assert not np.isnan(first).any()
        assert np.isnan(second).sum() < RUNS  # fewer than half of the runs lack it
