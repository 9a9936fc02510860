r"""A training run with Gaussian noise: its rounds, its rate, and what a round releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation

if TYPE_CHECKING:
    from accounting.claims.guarantee import Guarantee
    from accounting.mechanism.description import Description


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
    relation: Relation | None = None
    group: int = 1

    @property
    def rate(self) -> Fraction:
        r"""The share of the examples in a batch."""
        return Fraction(self.batch, self.examples)

    @property
    def batches(self) -> int:
        r"""How many batches an epoch has."""
        return self.examples // self.batch

    def release(self, sampling: Sampling) -> tuple[Description, int]:
        r"""What one round (or epoch) releases, and how many there are.

        A replaced example moves the sum of a batch by up to twice the clipping norm.

        Raises :class:`InvalidParameter` for a relation or a group that nothing is proven of.
        """
        from accounting.mechanism import description as the
        from accounting.mechanism.real_noise import Gaussian

        count, moves = self.rounds, 1
        scheme: the.Scheme = the.EVERYONE
        match sampling:
            case Sampling.POISSON:
                scheme = the.Poisson(rate=self.rate)
            case Sampling.ALLOCATED:
                scheme, count = the.Allocation(rounds=self.batches), math.ceil(self.epochs)
            case Sampling.FIXED:
                scheme, moves = the.FixedSize(sample=self.batch, population=self.examples), 2
            case Sampling.SHUFFLED:
                moves, count = 2, math.ceil(self.epochs)
        if sampling is Sampling.SHUFFLED and self.relation is Relation.ADD_REMOVE:
            must = "must be replace: shuffled batches keep their size"
            raise InvalidParameter("relation", self.relation.value, must)
        noise = Gaussian(sigma=self.multiplier)
        asked = the.Description(
            noise=noise,
            sensitivity=moves,
            scheme=scheme,
            relation=self.relation,
            group=self.group,
        )
        return asked, count

    def part(self, sampling: Sampling) -> tuple[Guarantee, int]:
        r"""The guarantee of :meth:`release`, and how many there are."""
        from accounting.release.guarantee import guarantee

        asked, count = self.release(sampling)
        return guarantee(asked), count

    def command(self, sampling: Sampling, delta: str) -> str:
        r"""The same asked of ``dpcore budget epsilon``."""
        asked, count = self.release(sampling)
        return f"dpcore budget epsilon --noise {asked.text} --rounds {count} --delta {delta}"
