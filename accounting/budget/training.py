r"""A training run with Gaussian noise: its rounds, its rate, and what a round releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.mechanism import Relation, Scope
from dpcore.numbers.rounding import exactly

if TYPE_CHECKING:
    from accounting.claims.guarantee import Guarantee
    from accounting.release.real_curve import RealCurve

__all__ = ["Sampling", "TrainingRun"]


class Sampling(StrEnum):
    r"""How a batch is drawn."""

    POISSON = "poisson"
    FIXED = "fixed"
    SHUFFLED = "shuffled"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    r"""A run of training; neighbours differ by ``group`` examples, replaced or added or removed."""

    multiplier: Fraction
    batch: int
    examples: int
    rounds: int
    epochs: Fraction
    replaced: bool = False
    group: int = 1

    @property
    def rate(self) -> Fraction:
        r"""The share of the examples in a batch."""
        return Fraction(self.batch, self.examples)

    @property
    def batches(self) -> int:
        r"""How many batches an epoch has."""
        return self.examples // self.batch

    def part(self, sampling: Sampling) -> tuple[Guarantee, int]:
        r"""What one round (or epoch) releases, and how many there are."""
        from accounting.reals.noise import Gaussian
        from accounting.release.allocation import RandomAllocation
        from accounting.release.real_curve import RealCurve
        from accounting.release.subsampling import FixedSizeSampled

        noise = Gaussian(sigma=self.multiplier)
        if sampling in (Sampling.POISSON, Sampling.ALLOCATED):
            scope = Scope(relation=Relation.ADD_REMOVE)
            curve = RealCurve(noise=noise, sensitivity=1, scope=scope)
            if sampling is Sampling.POISSON:
                return self._poisson(curve), self.rounds
            return RandomAllocation(curve=curve, rounds=self.batches), math.ceil(self.epochs)
        curve = RealCurve(noise=noise, sensitivity=2 * self.group)
        if sampling is Sampling.SHUFFLED:
            return curve, math.ceil(self.epochs)
        sampled = FixedSizeSampled(curve=curve, sample=self.batch, population=self.examples)
        return (curve if self.rate == 1 else sampled), self.rounds

    def _poisson(self, curve: RealCurve) -> Guarantee:
        from accounting.release.group import GroupSampled
        from accounting.release.real_curve import RealCurve
        from accounting.release.replaced import PoissonReplaced
        from accounting.release.subsampling import PoissonSampled

        if self.replaced:
            return PoissonReplaced(curve=curve, rate=self.rate)
        if self.rate == 1:
            return RealCurve(noise=curve.noise, sensitivity=self.group, scope=curve.scope)
        if self.group == 1:
            return PoissonSampled(curve=curve, rate=self.rate)
        return GroupSampled(curve=curve, rate=self.rate, members=self.group)

    def command(self, sampling: Sampling, delta: str) -> str | None:
        r"""The same asked of ``dpcore budget epsilon``, where that can be asked."""
        group = f" --group {self.group}" if self.group > 1 else ""
        noise = f"dpcore budget epsilon --noise gaussian:sigma={exactly(self.multiplier)}"
        match sampling:
            case Sampling.POISSON if not self.replaced:
                drawn = f"--poisson {self.batch}/{self.examples} --rounds {self.rounds}"
                return f"{noise} {drawn}{group} --delta {delta}"
            case Sampling.SHUFFLED:
                rounds = math.ceil(self.epochs)
                return f"{noise} --sensitivity 2 --rounds {rounds}{group} --delta {delta}"
        return None
