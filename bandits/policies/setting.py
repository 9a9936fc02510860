r"""What a named policy is made for: epsilon, delta, horizon, arms and how it is played."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from bandits.actions import LinearModel
from bandits.batch import arms_and_horizon, chance_of, check_word, confidence_of
from bandits.combinatorial.problem import Problem
from bandits.combinatorial.streams import StreamRelease
from bandits.policies.schedule import PAPER, RELEASED, Schedule, exact_schedule
from bandits.privatizers.averages import Calibrated
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.protocols import EVERYONE, Deployment
from bandits.radius.radius import RadiusName, TailName
from dpcore.numbers.parameter import Exact, make_positive

__all__ = ["ScheduleName", "Setting"]

ScheduleName: TypeAlias = Literal["exact", "paper", "released"]
r"""How long batches are: ``exact_schedule``, 2^b (the paper), 4^b (the code released with it)."""

_OF_PAPERS: Final = {"paper": PAPER, "released": RELEASED}
_SHORTEST: Final = Schedule(first=1, growth=2)
_OF_A_SHARE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    r"""The parameters that a named policy is built from: epsilon, delta, horizon, arms.

    Only shuffled bits use ``delta``: they have no pure epsilon.

    >>> Setting(epsilon="0.5", delta="1e-6", horizon=10**6, arms=10).epsilon
    Fraction(1, 2)

    ``confidence`` is p, the chance that the run makes a mistake. ``renyi_tail`` is the h of Renyi
    noise in the paper's radius, None for the released code's with its schedule and the printed one
    with any other (:class:`bandits.radius.radius.PaperRadius`). Algorithms of linear bandits have
    the other parameters: ``model`` is what the server knows, ``calibration`` says how their noise
    is chosen, ``users`` is the population (None for no end), ``alpha`` says how fast clients grow.
    Combinatorial ones have ``model``, their problem, and ``release``, how cucb-dp releases sums.
    ``max_visits`` is how often a user of a population of ``users`` may come, ``deployment`` who of
    the users of a release stays.

    Raises :class:`InvalidParameter` for epsilon not > 0, a delta outside of (0, 1), arms < 1, a
    horizon below the number of arms, a confidence outside of (0, 1/2), and names of no radius or
    schedule.
    """

    epsilon: Exact = Exact()
    delta: Exact = Exact()
    horizon: int
    arms: int
    radius: RadiusName = "exact"
    schedule: ScheduleName = "exact"
    confidence: Exact = Exact("1/10")
    renyi_tail: TailName | None = None
    model: LinearModel | Problem | None = None
    calibration: Calibrated = "exact"
    users: int | None = None
    alpha: Exact = Exact("4/5")
    release: StreamRelease = "tree"
    max_visits: int | None = None
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        make_positive(self, epsilon="no noise gives epsilon 0")
        delta = chance_of("delta", self.delta)
        arms, horizon = arms_and_horizon(self.arms, self.horizon)
        check_word("radius", self.radius, RadiusName)
        check_word("schedule", self.schedule, ScheduleName)
        check_word("calibration", self.calibration, Calibrated)
        check_word("release", self.release, StreamRelease)
        if self.renyi_tail is not None:
            check_word("renyi_tail", self.renyi_tail, TailName)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "horizon", horizon)
        object.__setattr__(self, "confidence", confidence_of(self.confidence))

    @property
    def failure(self) -> Fraction:
        r"""The chance that a sum is read wrongly mod m: 1/T in the paper.

        With the exact radius a wrong reading is paid from an interval's share of p, so it may not
        exceed a hundredth of the least share either: no run has more batches than
        B, that of batches of 1, 2, 4, ... pulls of two arms, and no share is below p/(B (B + 1) K).

        >>> from dataclasses import replace
        >>> few = Setting(epsilon=1, delta="1e-6", horizon=10**4, arms=150)
        >>> few.failure, replace(few, radius="paper").failure
        (Fraction(1, 23400000), Fraction(1, 10000))
        """
        paper = Fraction(1, max(self.horizon, 2))
        if self.radius == "paper":
            return paper
        batches = _SHORTEST.batches(self.horizon)
        share = self.confidence / (batches * (batches + 1) * self.arms)
        return min(paper, share * _OF_A_SHARE)

    def schedule_for(self, privatizer: Privatizer) -> Schedule:
        r"""The batches that ``schedule`` names; the exact ones are fit for the noise."""
        return _OF_PAPERS.get(self.schedule) or exact_schedule(
            privatizer, arms=self.arms, horizon=self.horizon, failure=self.confidence
        )
