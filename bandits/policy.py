r"""What a bandit algorithm is: pure functions on a frozen state that see released sums only.

A policy says how often it wants every arm pulled, and is told one released sum for each arm. A
:class:`ReleasedSum` comes out of ``Privatizer.release`` and from nowhere else, and rewards never
leave ``play``: no method of a policy is given a raw reward, and one that asks for it does not pass
the type checker. That is a guard against mistakes. A policy that its author gives the world and its
coins can draw the rewards itself, and code of the same process can read its memory: policies and
privatizers are trusted code, and ``dpcore audit`` is there to doubt it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, NewType, TypeAlias, TypeVar

from dpcore.errors import InvalidParameter
from dpcore.parameter import RationalLike, integer, rational

if TYPE_CHECKING:
    from bandits.privatizer import Privatizer

__all__ = [
    "Choice",
    "Commit",
    "Policy",
    "Pulls",
    "Released",
    "ReleasedSum",
    "State",
    "arms_and_horizon",
    "chance_of",
    "confidence_of",
]

ReleasedSum = NewType("ReleasedSum", Fraction)
"""A sum of rewards as a privatizer released it, in units of reward. Only privatizers make one."""

State = TypeVar("State")


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
    r"""Nothing is left to learn: ``arm`` is pulled to the horizon, and nothing is released."""

    arm: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "arm", integer("arm", self.arm, at_least=0))


Choice: TypeAlias = Pulls | Commit
"""What a policy may ask for."""


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
            reason = "must be a tuple of released sums: exact, each from a privatizer, or None"
            raise InvalidParameter("sums", self.sums, reason)


class Policy(ABC, Generic[State]):
    r"""A bandit algorithm. All its methods are pure; ``State`` is frozen and its own.

    A run calls ``init`` once and then, batch after batch, ``choose`` and ``observe``, until the
    horizon or a :class:`Commit`. A batch that does not fit before the horizon is pulled as far as
    it goes, and is never observed.

    ``name`` and ``privatizer`` may be properties, or fields of a dataclass. A field needs
    ``= field()``: a dataclass would take the bare annotation's default from this class, where it
    finds the property.

    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Forever(Policy[int]):
    ...     privatizer: "Privatizer" = field()
    ...     name: str = "forever"
    ...
    ...     def init(self, arms: int, horizon: int) -> int:
    ...         return arms
    ...
    ...     def choose(self, state: int) -> Choice:
    ...         return Pulls((64,) * state)
    ...
    ...     def observe(self, state: int, released: Released) -> int:
    ...         return state
    ...
    ...     def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
    ...         return (64,)
    >>> Forever()
    Traceback (most recent call last):
    ...
    TypeError: ...missing 1 required keyword-only argument: 'privatizer'
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        r"""How the algorithm is called in tables, e.g. ``"dist-dp-se"``."""

    @property
    @abstractmethod
    def privatizer(self) -> Privatizer:
        r"""The only way by which the policy learns of rewards."""

    @abstractmethod
    def init(self, arms: int, horizon: int) -> State:
        r"""The state before the first round.

        Raises :class:`InvalidParameter` for arms < 1 and a horizon below the number of arms.
        """

    @abstractmethod
    def choose(self, state: State) -> Choice:
        r"""The next batch, or the arm that is left."""

    @abstractmethod
    def observe(self, state: State, released: Released) -> State:
        r"""The state after the batch that :meth:`choose` asked for."""

    @abstractmethod
    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        r"""Every number of users whose rewards one sum of a run could hold, whatever is released.

        Which sum a user is in depends on what was released before; the promise to the user is the
        worst over all of these. ``play`` refuses a batch of a size that is missing; one too many
        can only make the promise weaker. A batch that the horizon cuts counts for nothing.
        """


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
