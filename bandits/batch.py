r"""The requests of a policy (batches of plays) and their results (released sums).

These types are shared by all families of bandits. A batch consists of requests (:class:`Ask`), each
with a number of users and the actions that every one of them plays. A user sends one encoded value
per action: the average reward of this action over the rounds in which the user observed it. An
environment returns the sums of these values over the users, a privatizer releases noisy versions of
the sums, and a policy receives the released sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import NewType

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    Whole,
    check_fields,
    integer,
    make_integers,
    rational_in,
)
from dpcore.protocols.fixed_point_encoding import MOST_STEPS

ReleasedSum = NewType("ReleasedSum", Fraction)
"""A released sum of rewards, in units of reward; only privatizers create such sums."""


@dataclass(frozen=True, slots=True)
class Ask:
    r"""A request that each of ``users`` users plays each of ``actions``.

    If ``times`` is None, every user has a round of their own, in which all ``actions`` are played;
    usually there is only one action. Otherwise all users observe the same rounds, and
    ``actions[i]`` is played in ``times[i]`` of them.
    """

    users: int
    actions: tuple[int, ...]
    times: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        make_integers(self, "users")
        actions = tuple(integer("actions", action, at_least=0) for action in self.actions)
        if not actions or len(set(actions)) < len(actions):
            raise InvalidParameter("actions", self.actions, "must be non-empty and distinct")
        object.__setattr__(self, "actions", actions)
        if self.times is None:
            return
        times = tuple(integer("times", count, at_least=1) for count in self.times)
        if len(times) != len(self.actions):
            raise InvalidParameter("times", self.times, "must have the same length as actions")
        object.__setattr__(self, "times", times)

    @property
    def rounds(self) -> int:
        return self.users if self.times is None else sum(self.times)

    @property
    def plays(self) -> tuple[int, ...]:
        r"""The number of rounds in which each action is played."""
        return self.times or (self.users,) * len(self.actions)


@dataclass(frozen=True, slots=True)
class Plays:
    r"""A batch of requests ``asks`` in a bandit with ``arms`` actions.

    After the batch, the sum over its users is released for each action. ``active`` lists the
    actions that have not been eliminated.
    """

    arms: int
    asks: tuple[Ask, ...]
    active: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        named = [action for ask in self.asks for action in ask.actions]
        if not named or len(set(named)) < len(named) or max(named) >= self.arms:
            raise InvalidParameter(
                "asks",
                self.asks,
                f"must contain at least one action; all must be distinct and below {self.arms}",
            )

    @property
    def counts(self) -> tuple[int, ...]:
        r"""The number of rounds in which each of the ``arms`` actions is played."""
        asked = (zip(ask.actions, ask.plays, strict=True) for ask in self.asks)
        times = dict(chain.from_iterable(asked))
        return tuple(times.get(action, 0) for action in range(self.arms))

    @property
    def total(self) -> int:
        return sum(ask.rounds for ask in self.asks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    r"""The encoding of a user's value y as an integer in [0, g], where g = ``precision``.

    First y is clipped to [``low``, ``high``]. Then g (y - low)/(high - low) is rounded at random to
    an adjacent integer, so that the mean is preserved. The result lies in [0, g] for every y, and
    the privacy guarantee depends only on this range.

    >>> Encoding(precision=4, low=-2, high=2).steps(np.array([-9.0, 1.0]), np.random.default_rng(1))
    array([0, 3])

    Raises :class:`InvalidParameter` if the precision is outside [1, 2^40] or high <= low.
    """

    precision: Whole = Whole(at_most=MOST_STEPS)
    low: Exact = Exact(0)
    high: Exact = Exact(1)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.high <= self.low:
            raise InvalidParameter("high", self.high, f"must be > low = {self.low}")

    @property
    def step(self) -> Fraction:
        r"""The increase of a value that corresponds to one step of its encoding."""
        return (self.high - self.low) / self.precision

    def steps(self, values: Floats, world: np.random.Generator) -> Integers:
        r"""Encode each of ``values``; the generator ``world`` draws the random rounding.

        Raises :class:`InvalidParameter` if a value is NaN, which cannot be clipped.
        """
        if np.isnan(values).any():
            raise InvalidParameter("reward", "nan", "must be a number")
        y = np.clip(values, float(self.low), float(self.high))
        y -= float(self.low)
        y *= self.precision / float(self.high - self.low)
        y -= world.random(y.shape)
        np.ceil(y, out=y)
        found: Integers = np.clip(y, 0, self.precision).astype(np.int64)
        return found


@dataclass(frozen=True, slots=True)
class Pulls:
    r"""A batch in which ``counts[a]`` users pull arm a; then the sum of each arm is released."""

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.counts, tuple):
            raise InvalidParameter("counts", self.counts, "must be a tuple")
        exact = tuple(integer("counts", count, at_least=0) for count in self.counts)
        if not any(exact):
            raise InvalidParameter("counts", self.counts, "must pull at least one arm")
        object.__setattr__(self, "counts", exact)

    @property
    def active(self) -> tuple[int, ...]:
        return tuple(arm for arm, n in enumerate(self.counts) if n)

    @property
    def asks(self) -> tuple[Ask, ...]:
        return tuple(Ask(n, (arm,)) for arm, n in enumerate(self.counts) if n)

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Commit:
    r"""The decision to stop learning: pull ``arm`` until the horizon, without further releases."""

    arm: Whole = Whole(at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Released:
    r"""The released sum of each arm in a batch; ``sums[a]`` is None if arm a was not pulled."""

    sums: tuple[ReleasedSum | None, ...]

    def __post_init__(self) -> None:
        exact = isinstance(self.sums, tuple) and all(
            total is None or isinstance(total, Fraction) for total in self.sums
        )
        if not exact:
            reason = "must be a tuple whose elements are None or a ReleasedSum of a privatizer"
            raise InvalidParameter("sums", self.sums, reason)


def arms_and_horizon(arms: int, horizon: int) -> tuple[int, int]:
    r"""Return K = ``arms`` and T = ``horizon`` as integers; raise an error unless T >= K >= 1."""
    arms, horizon = integer("arms", arms, at_least=1), integer("horizon", horizon, at_least=1)
    if horizon < arms:
        raise InvalidParameter("horizon", horizon, f"must be >= arms = {arms}")
    return arms, horizon


def failure_probability_of(
    value: RationalLike, *, argument: str = "failure_probability"
) -> Fraction:
    r"""Parse the failure probability p of a run, which must lie in (0, 1/2).

    p bounds the probability that at least one confidence interval does not contain its mean, e.g.
    0.05. Values outside (0, 1/2) raise an error; those >= 1/2 are probably confidence levels.
    """
    exact = rational_in(argument, value, "(0, 1)")
    if 2 * exact >= 1:
        reason = "must be < 1/2: it is an error probability, so write 0.05 for 95% confidence"
        raise InvalidParameter(argument, value, reason)
    return exact


class FailureProbability(Exact):
    r"""A dataclass field for a failure probability, parsed by :func:`failure_probability_of`."""

    def read(self, argument: str, value: object) -> Fraction:
        return failure_probability_of(value, argument=argument)  # type: ignore[arg-type]  # other types raise an error
