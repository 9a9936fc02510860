r"""The interface of a bandit algorithm: pure functions of a frozen state and released sums.

A policy requests a number of pulls of every arm and receives one released sum for each arm. Only
``Privatizer.release`` creates a :class:`ReleasedSum`, and rewards never leave ``play``: no method
of a policy receives a raw reward, and a policy whose methods require a raw reward fails type
checking. This only protects against mistakes. A policy that has access to the simulated world and
its random generator can draw the rewards itself, and code in the same process can read its memory.
Policies and privatizers are therefore trusted code. Test them with ``dpcore audit``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from bandits.batch import Commit, Plays, Pulls, Released
from dpcore.numbers.parameter import check_fields

if TYPE_CHECKING:
    from bandits.privatizers.privatizer import Releasing


State = TypeVar("State")


class Sizes(Protocol):
    r"""A collection of release sizes that need not be listed completely.

    ``in`` tests whether a size belongs to the collection. Iteration may yield only some of the
    sizes, if the worst guarantee over these is the worst over all sizes.
    """

    def __contains__(self, size: object, /) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...


Choice: TypeAlias = Pulls | Plays | Commit
"""The possible choices of a policy."""


class Policy(ABC, Generic[State]):
    r"""A bandit algorithm, which chooses batches of pulls. All methods are pure functions.

    A run calls ``init`` once and then, for every batch, ``choose`` and ``observe``, until the
    horizon or a :class:`Commit`. A batch that exceeds the horizon, or for which too few users
    are left, ends the run and is never observed.

    ``name`` and ``privatizer`` may be properties or fields of a dataclass. A field needs
    ``= field()``; otherwise the property of this class would become its default.

    >>> from dataclasses import dataclass, field
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Forever(Policy[int]):
    ...     privatizer: "Releasing[int]" = field()
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

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abstractmethod
    def name(self) -> str:
        r"""The name of the algorithm in tables, e.g. ``"dist-dp-se"``."""

    @property
    @abstractmethod
    def privatizer(self) -> Releasing[Any]:
        r"""The privatizer, which is the policy's only access to rewards."""

    @abstractmethod
    def init(self, arms: int, horizon: int) -> State:
        r"""The state before the first round.

        Raises :class:`InvalidParameter` if arms < 1 or the horizon is below the number of arms.
        """

    @abstractmethod
    def choose(self, state: State) -> Choice:
        r"""The next batch, or the arm to commit to."""

    @abstractmethod
    def observe(self, state: State, released: Released) -> State:
        r"""The state after the batch that :meth:`choose` requested."""

    @abstractmethod
    def sizes(self, arms: int, horizon: int) -> Sizes:
        r"""All possible sizes of the releases of a run.

        For sums, a size is the number of users whose rewards are in the sum. Which sum contains a
        given user depends on earlier releases, so the user's guarantee is the worst over all sizes.
        ``play`` raises an error if a batch has an unlisted size; additional sizes can only weaken
        the guarantee. A batch that exceeds the horizon needs no size.
        """
