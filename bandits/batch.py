r"""What a policy asks for and is given: pulls of a batch and released sums."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NewType

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer, rational

__all__ = [
    "Commit",
    "Pulls",
    "Released",
    "ReleasedSum",
    "arms_and_horizon",
    "chance_of",
    "confidence_of",
]


ReleasedSum = NewType("ReleasedSum", Fraction)
"""A sum of rewards as a privatizer released it, in units of reward. Only privatizers make one."""


@dataclass(frozen=True, slots=True)
class Pulls:
    r"""A batch: ``counts[a]`` fresh users pull arm a, arm after arm; then their sums are released.

    >>> Pulls((4, 0, 4)).total
    8

    Raises :class:`InvalidParameter` for counts that are not integers >= 0, or all 0.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.counts, tuple):
            raise InvalidParameter("counts", self.counts, "must be a tuple")
        exact = tuple(integer("counts", count, at_least=0) for count in self.counts)
        if not any(exact):
            raise InvalidParameter("counts", self.counts, "must pull some arm")
        object.__setattr__(self, "counts", exact)

    @property
    def total(self) -> int:
        r"""The rounds that the batch takes."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Commit:
    r"""Stop learning: pull ``arm`` up to the horizon, and release nothing more."""

    arm: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "arm", integer("arm", self.arm, at_least=0))


@dataclass(frozen=True, slots=True)
class Released:
    r"""What a policy learns from a batch: ``sums[a]``, or None where arm a was not pulled.

    >>> Released((None,)).sums
    (None,)

    Raises :class:`InvalidParameter` for anything but exact sums: a count of rewards or a float is
    no released value.
    """

    sums: tuple[ReleasedSum | None, ...]

    def __post_init__(self) -> None:
        exact = isinstance(self.sums, tuple) and all(
            total is None or isinstance(total, Fraction) for total in self.sums
        )
        if not exact:
            reason = "must be a tuple of exact released sums, each from a privatizer, or None"
            raise InvalidParameter("sums", self.sums, reason)


def arms_and_horizon(arms: int, horizon: int) -> tuple[int, int]:
    r"""K >= 1 and T >= K, as integers, or :class:`InvalidParameter`.

    >>> arms_and_horizon(10, 1000)
    (10, 1000)
    """
    arms, horizon = integer("arms", arms, at_least=1), integer("horizon", horizon, at_least=1)
    if horizon < arms:
        raise InvalidParameter("horizon", horizon, f"must be >= arms = {arms}: every arm is tried")
    return arms, horizon


def chance_of(argument: str, value: RationalLike) -> Fraction:
    r"""A probability in (0, 1), exact, or :class:`InvalidParameter` of ``argument``.

    >>> chance_of("delta", "1e-6")
    Fraction(1, 1000000)
    """
    exact = rational(argument, value)
    if not 0 < exact < 1:
        raise InvalidParameter(argument, value, "must lie in (0, 1)")
    return exact


def confidence_of(value: RationalLike, *, argument: str = "confidence") -> Fraction:
    r"""The p of a run: the chance that some confidence interval misses its mean, in (0, 1/2).

    It is the chance of the mistake, so what others call 95% confidence is 0.05 here. Half and more
    is refused, for nobody means it.

    >>> confidence_of("0.05")
    Fraction(1, 20)
    >>> confidence_of("0.95")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: confidence = 0.95: must be < 1/2: it is the chance of a...
    """
    exact = chance_of(argument, value)
    if 2 * exact >= 1:
        reason = "must be < 1/2: it is the chance of a mistake, so write 0.05 for 95% confidence"
        raise InvalidParameter(argument, value, reason)
    return exact
