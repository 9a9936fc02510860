r"""The parameters of named policies."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from bandits.actions import LinearModel
from bandits.batch import FailureProbability, arms_and_horizon
from bandits.combinatorial_problem import Problem
from bandits.policies.batch_schedule import OF_PAPERS, Schedule, ScheduleName, exact_schedule
from bandits.privatizers.deployment import EVERYONE, NO_NOISE, Deployment
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.running_sums import StreamRelease
from bandits.privatizers.vector_averages import Calibrated
from bandits.radius.confidence_radii import RadiusName, TailName
from dpcore.numbers.parameter import Exact, Whole, check_fields
from dpcore.spec_syntax import check_word, word

EXACT_SCALING: Final = 4
r"""The multiple of the paper's g = ceil(epsilon sqrt n) at which rounding is negligible.

Rounding in steps of 1/g gives a sum a variance of at most n/(4 g^2), that is 1/(64 epsilon^2) for
this g: 1/128 of the variance of discrete Laplace noise, for two bits per user. (A certified width
has no rounding term; rounding only increases the variance of the mean.)
"""

_SHORTEST: Final = Schedule(first=1, growth=2)
_OF_A_SHARE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    r"""Parameters shared by policies and experiments: the horizon and variants.

    ``failure_probability`` is p, the probability that the run drops the best arm. ``renyi_tail``
    selects the h of Renyi noise in the paper's radius; None selects that of the released code with
    its schedule and the printed one with others (``confidence_radii.PaperRadius``).
    ``max_visits`` is the largest number of visits of each of ``users`` users (None: unlimited), and
    ``deployment`` plans for dropouts. For linear algorithms, ``calibration`` sets the noise and
    ``alpha`` the growth of the number of clients. ``release`` is for cucb-dp and cucb-dp2.
    """

    horizon: Whole = Whole()
    radius: RadiusName = word(RadiusName, "exact")
    failure_probability: FailureProbability = FailureProbability("1/10")
    renyi_tail: TailName | None = None
    calibration: Calibrated = word(Calibrated, "exact")
    users: int | None = None
    alpha: Exact = Exact("4/5", within="(0, 1)")
    release: StreamRelease = word(StreamRelease, "tree")
    max_visits: int | None = None
    deployment: Deployment = EVERYONE

    def __post_init__(self) -> None:
        check_fields(self)
        if self.renyi_tail is not None:
            check_word("renyi_tail", self.renyi_tail, TailName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(RunParameters):
    r"""The parameters from which a named policy is built: epsilon, delta, horizon, arms.

    Only shuffled bits use ``delta``, as they have no pure epsilon. ``model`` is the server's prior
    knowledge of a linear or combinatorial problem.

    >>> Setting(epsilon="0.5", delta="1e-6", horizon=10**6, arms=10).epsilon
    Fraction(1, 2)

    Raises :class:`InvalidParameter` unless epsilon > 0 and delta is in (0, 1), for arms < 1, a
    horizon below the number of arms, a failure probability outside (0, 1/2), and an unknown radius
    or schedule.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    delta: Exact = Exact(within="(0, 1)")
    arms: Whole = Whole()
    schedule: ScheduleName = word(ScheduleName, "exact")
    model: LinearModel | Problem | None = None

    def __post_init__(self) -> None:
        RunParameters.__post_init__(self)
        arms_and_horizon(self.arms, self.horizon)

    @property
    def failure(self) -> Fraction:
        r"""The probability that a sum mod m is decoded incorrectly: 1/T in the paper.

        With the exact radius, a decoding error counts against the share of p of an interval, so its
        probability is also at most a hundredth of the smallest share. No share is below p/(B (B +
        1) K), where B is the largest possible number of batches: batches of 1, 2, 4, ... pulls of
        two arms.

        >>> from dataclasses import replace
        >>> few = Setting(epsilon=1, delta="1e-6", horizon=10**4, arms=150)
        >>> few.failure, replace(few, radius="paper").failure
        (Fraction(1, 23400000), Fraction(1, 10000))
        """
        paper = Fraction(1, max(self.horizon, 2))
        if self.radius == "paper":
            return paper
        batches = _SHORTEST.batches(self.horizon)
        share = Fraction(self.failure_probability) / (batches * (batches + 1) * self.arms)
        return min(paper, share * _OF_A_SHARE)

    def schedule_for(self, privatizer: Privatizer) -> Schedule:
        r"""The batch lengths of ``schedule``; exact ones are adapted to the noise."""
        return OF_PAPERS.get(self.schedule) or exact_schedule(
            privatizer, arms=self.arms, horizon=self.horizon, failure=self.failure_probability
        )
