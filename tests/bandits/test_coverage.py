"""Certified widths cover: a run in which some released mean is too far off is no likelier than p.

Runs are short and full of noise, and rewards skewed, so the bounds are nearly reached: a radius of
0.7 of the width is caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bandits.audit_target import ABSENT, ARMS, transcripts
from bandits.elimination import BatchedElimination
from bandits.privatizer import Privatizer
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer, Trust
from bandits.radius import ExactRadius, Radius
from bandits.schedule import Schedule
from dpcore.binomial import Binomial
from dpcore.parameter import RationalLike
from dpcore.rng import SeededRng
from tests.purse import purse

MEANS = (0.02, 0.9)
P = Fraction(1, 5)
RUNS = 4000
BATCHES = 2

Sums = npt.NDArray[np.int64]


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


@cache
def played(trust: str) -> tuple[BatchedElimination, Sums]:
    policy = BatchedElimination(
        privatizer=PRIVATIZERS[trust],
        schedule=Schedule(first=8, growth=2),
        radius=ExactRadius(batches=BATCHES),
        confidence=P,
    )
    world = np.random.default_rng(6)

    def encoded(batch: int, arm: int, pulls: int, precision: int, runs: int) -> Sums:
        return world.binomial(pulls, MEANS[arm], runs) * precision

    seed = list(PRIVATIZERS).index(trust)
    return policy, transcripts(
        policy, encoded, batches=BATCHES, runs=RUNS, rng=SeededRng(600 + seed)
    )


def means_off(trust: str) -> list[tuple[int, Sums, npt.NDArray[np.float64]]]:
    """Batch by batch: its pulls, the runs that had it, and how far off the means are."""
    policy, seen = played(trust)
    found = []
    for batch in range(1, BATCHES + 1):
        sums = seen[:, ARMS * (batch - 1) : ARMS * batch]
        there = np.flatnonzero((sums != ABSENT).all(axis=1))
        pulls = policy.schedule.pulls(batch)
        noise = policy.privatizer.noise(pulls)
        centre = float(Fraction(noise.mean)) if isinstance(noise, Binomial) else 0.0
        means = (sums[there] - centre) / (pulls * policy.privatizer.precision(pulls))
        found.append((pulls, there, means - np.array(MEANS)))
    return found


def failures_of_width(trust: str, radius: Radius) -> int:
    failed = np.zeros(RUNS, dtype=bool)
    privatizer = PRIVATIZERS[trust]
    for batch, (pulls, there, off) in enumerate(means_off(trust), 1):
        width = radius.width(privatizer, pulls, batch=batch, active=ARMS, failure=P)
        failed[there] |= (np.abs(off) > width).any(axis=1)
    return int(failed.sum())


def failures_of_gap(trust: str, radius: Radius) -> int:
    failed = np.zeros(RUNS, dtype=bool)
    privatizer = PRIVATIZERS[trust]
    for batch, (pulls, there, off) in enumerate(means_off(trust), 1):
        gap = radius.gap(privatizer, pulls, batch=batch, active=ARMS, failure=P)
        failed[there] |= np.abs(off[:, 0] - off[:, 1]) > gap
    return int(failed.sum())


def too_many(failures: int) -> float:
    return float(stats.binomtest(failures, RUNS, float(P), alternative="greater").pvalue)


@each_trust
def test_all_means_of_a_run_are_within_their_widths(trust: str) -> None:
    alpha = purse.buy(f"bandits coverage of widths: {trust}", "1e-9")
    assert too_many(failures_of_width(trust, ExactRadius(batches=BATCHES))) > alpha
    assert too_many(failures_of_width(trust, Narrow(part=0.7))) < alpha


@each_trust
def test_all_differences_of_a_run_are_within_their_gaps(trust: str) -> None:
    alpha = purse.buy(f"bandits coverage of gaps: {trust}", "1e-9")
    assert too_many(failures_of_gap(trust, ExactRadius(batches=BATCHES))) > alpha
    assert too_many(failures_of_gap(trust, Narrow(part=0.7))) < alpha


def test_the_second_batch_is_there_often_enough_to_count() -> None:
    for trust in PRIVATIZERS:
        (_, first, _), (_, second, _) = means_off(trust)
        assert len(first) == RUNS
        assert len(second) > RUNS // 2
