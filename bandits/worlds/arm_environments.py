r"""Simulated worlds: arms whose pulls give rewards in [0, 1].

An environment outputs only the sum of a batch of encoded rewards. A reward x is encoded as floor(x
g + U), where g is the precision and U is uniform on [0, 1). Rewards and this random rounding are
drawn from the numpy generator ``world``. The privacy guarantee depends only on the sensitivity of
the sum, which is always g.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np

from bandits.actions import LinearModel
from bandits.batch import Ask, Encoding
from bandits.combinatorial_rewards_and_oracles import Problem
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer, rational
from dpcore.protocols.fixed_point_encoding import MOST_STEPS

_CHUNK: Final = 1 << 15
_EXACT: Final = 1 << 52
_MOST_SUM: Final = 1 << 62
_LEAST_DEVIATION: Final = Fraction(1, 10**300)
_MOST_DEVIATION: Final = 1000


class Environment(ABC):
    r"""A world of K arms: a pull of arm a gives an independent reward of mean ``means[a]``.

    Rewards lie in [0, 1]. In worlds with other actions than single arms, rewards may be unbounded
    and their means lie in [``lowest``, 1].
    """

    __slots__ = ()

    lowest: ClassVar[int] = 0
    r"""The smallest possible mean of an action; the largest is 1."""

    @property
    def model(self) -> LinearModel | Problem | None:
        r"""What the server knows about the world in advance; None for independent arms."""
        return None

    @property
    @abstractmethod
    def means(self) -> tuple[float, ...]:
        r"""The true means, for the regret, as floats with an absolute error of at most 1e-12."""

    @property
    def arms(self) -> int:
        return len(self.means)  # overridden where computing the means is slow

    @property
    def gaps(self) -> tuple[float, ...]:
        r"""The gap of each arm: the best mean minus its mean.

        >>> Bernoulli(means=(0.5, 0.75)).gaps
        (0.25, 0.0)
        """
        best = max(self.means)
        return tuple(best - mean for mean in self.means)

    def encoded_sums(
        self, ask: Ask, encoding: Encoding, world: np.random.Generator
    ) -> tuple[int, ...]:
        r"""Draw, for each action of ``ask``, the sum of the encoded values of all its users.

        In this class each user pulls one arm once; other requests raise :class:`InvalidParameter`.
        """
        if ask.times is not None or len(ask.actions) != 1 or encoding.low != 0:
            reason = "must request pulls of one arm with rewards in [0, 1] in this world"
            raise InvalidParameter("ask", ask, reason)
        return (self.encoded_sum(ask.actions[0], ask.users, encoding.precision, world),)

    def encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        r"""Draw the sum of ``pulls`` new rewards of ``arm``, each encoded in ``precision`` steps.

        The encoding of a reward x is an integer in [0, g] with mean x g, up to an error of g 2^-50,
        where g = ``precision``. Raises :class:`InvalidParameter` if the arm is unknown, pulls < 1,
        g is outside [1, 2^40], the sum could reach 2^62, or ``world`` is not a numpy generator.
        """
        arm, pulls = integer("arm", arm, at_least=0), integer("pulls", pulls, at_least=1)
        if arm >= self.arms:
            raise InvalidParameter("arm", arm, f"must be < arms = {self.arms}")
        steps = integer("precision", precision, at_least=1, at_most=MOST_STEPS)
        if pulls * steps >= _MOST_SUM:
            raise InvalidParameter("pulls", pulls, "must be < 2^62 / precision")
        if not isinstance(world, np.random.Generator):
            raise InvalidParameter("world", world, "must be a numpy.random.Generator")
        return self._encoded_sum(arm, pulls, steps, world)

    @abstractmethod
    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        r"""Draw the result of :meth:`encoded_sum`, whose arguments are already checked.

        A subclass need not define any other method that draws at random. The sum is over ``pulls``
        encodings, which are integers in [0, g] with mean ``means[arm]`` g, where g = ``precision``.
        An example is floor(x g + U) for a reward x in [0, 1] and U uniform on [0, 1). Rewards are
        independent within and between batches and drawn from the generator ``world``. The privacy
        guarantee assumes the range of every encoding, which cannot be checked from the sum.

        >>> class Thirds(Environment):
        ...     means = (2 / 3, 1 / 3)
        ...
        ...     def _encoded_sum(self, arm, pulls, precision, world):
        ...         ones = int(world.binomial(pulls, self.means[arm]))
        ...         return ones * precision
        >>> Thirds().encoded_sum(0, 9, 4, np.random.default_rng(1)) in range(0, 37, 4)
        True
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedNormal(Environment):
    r"""A world with rewards Normal(``centers[a]``, ``deviation``^2), clipped to [0, 1].

    ``means`` are the means of the clipped law, which differ from the centers.
    """

    centers: tuple[float, ...]
    deviation: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "centers", _means("centers", self.centers))
        deviation = rational("deviation", self.deviation)
        if not _LEAST_DEVIATION <= deviation <= _MOST_DEVIATION:
            raise InvalidParameter("deviation", self.deviation, "must lie in [1e-300, 1000]")
        object.__setattr__(self, "deviation", float(deviation))

    @property
    def arms(self) -> int:
        return len(self.centers)

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(_clipped_mean(center, self.deviation) for center in self.centers)

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        # ceil(y - U) is floor(y) + Bernoulli(y - floor(y)) and stays in [0, g] for y in [0, g].
        # Float sums of a chunk are exact, because they are integers below 2^52.
        size = max(min(_CHUNK, _EXACT // precision), 1)
        steps, uniform = np.empty(min(size, pulls)), np.empty(min(size, pulls))
        scale, center = self.deviation * precision, self.centers[arm] * precision
        total = 0
        for start in range(0, pulls, size):
            y, u = steps[: pulls - start], uniform[: pulls - start]
            world.standard_normal(out=y)
            y *= scale
            y += center
            np.clip(y, 0.0, precision, out=y)
            world.random(out=u)
            y -= u
            np.ceil(y, out=y)
            total += int(y.sum())
        return total


@dataclass(frozen=True, slots=True, init=False)
class Bernoulli(Environment):
    r"""A world with rewards 0 or 1; ``means[a]`` is the probability of 1.

    >>> Bernoulli(means=(0.5, 1.0)).encoded_sum(1, 8, 4, np.random.default_rng(1))
    32

    Raises :class:`InvalidParameter` if there are no arms or a mean lies outside [0, 1].
    """

    chances: tuple[float, ...]

    def __init__(self, *, means: Sequence[RationalLike]) -> None:
        object.__setattr__(self, "chances", _means("means", means))

    @property
    def means(self) -> tuple[float, ...]:
        return self.chances

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        return int(world.binomial(pulls, self.chances[arm])) * precision


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Table(Environment):
    r"""A world with rewards drawn with replacement from a table of real rewards, one list per arm.

    The rewards of a batch are drawn together, as a multinomial count for each distinct value.
    Values are exact rationals; a float is read as its shortest decimal form.
    """

    values: tuple[tuple[Fraction, ...], ...]
    counts: tuple[tuple[int, ...], ...]

    def __init__(self, *, rewards: Iterable[Iterable[Any]]) -> None:
        arms = [_distinct(arm) for arm in _listed("rewards", rewards)]
        if not arms:
            raise InvalidParameter("rewards", (), "must contain at least one arm")
        object.__setattr__(self, "values", tuple(values for values, _ in arms))
        object.__setattr__(self, "counts", tuple(counts for _, counts in arms))

    @property
    def arms(self) -> int:
        return len(self.values)

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(
            float(sum((v * n for v, n in zip(vs, ns, strict=True)), Fraction(0)) / sum(ns))
            for vs, ns in zip(self.values, self.counts, strict=True)
        )

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        # The sum of n users with the value v is n floor(v g) + Binomial(n, v g - floor(v g)).
        counts = np.array(self.counts[arm])
        drawn = world.multinomial(pulls, counts / counts.sum())
        steps = [value * precision for value in self.values[arm]]
        whole = [math.floor(step) for step in steps]
        rest = [float(step - low) for step, low in zip(steps, whole, strict=True)]
        return int(drawn @ np.array(whole)) + int(world.binomial(drawn, rest).sum())

    def __repr__(self) -> str:
        return f"Table(arms={len(self.values)}, rewards={sum(map(sum, self.counts))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordered(Environment):
    """The arms of ``world`` in another order, so that positions do not reveal the best arm."""

    world: Environment
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.world, Environment):
            raise InvalidParameter("world", self.world, "must be an Environment")
        order = tuple(integer("order", arm, at_least=0) for arm in _listed("order", self.order))
        if sorted(order) != [*range(self.world.arms)]:
            reason = f"must contain each of the {self.world.arms} arms exactly once"
            raise InvalidParameter("order", self.order, reason)
        object.__setattr__(self, "order", order)

    @property
    def arms(self) -> int:
        return len(self.order)

    @property
    def means(self) -> tuple[float, ...]:
        means = self.world.means
        return tuple(means[arm] for arm in self.order)

    def _encoded_sum(self, arm: int, pulls: int, precision: int, world: np.random.Generator) -> int:
        return self.world.encoded_sum(self.order[arm], pulls, precision, world)


def cz_instance(gap: RationalLike, seed: int, *, arms: int = 10) -> ClippedNormal:
    r"""Create instance ``seed`` of the arms in Chowdhury and Zhou's code.

    The center of each arm is (1 - gap)/2 + gap u, where u is drawn uniformly from [0, 1) by numpy's
    legacy generator with this seed, independently for each arm. Rewards have standard deviation 0.1
    before they are clipped. A ``gap`` of 0.5 gives their easy instances, with centers in [0.25,
    0.75], and 0.1 their hard instances, with centers in [0.45, 0.55].

    >>> [round(center, 3) for center in cz_instance("0.5", 0).centers[:3]]
    [0.524, 0.608, 0.551]

    Raises :class:`InvalidParameter` if the gap is outside (0, 1], the seed is not an integer in [0,
    2^32), or arms < 1.
    """
    width = float(rational("gap", gap))
    if not 0 < width <= 1:
        raise InvalidParameter("gap", gap, "must lie in (0, 1]")
    seed, arms = integer("seed", seed, at_least=0), integer("arms", arms, at_least=1)
    if seed >= 1 << 32:
        raise InvalidParameter("seed", seed, "must be < 2^32")
    uniform = np.random.RandomState(seed).random_sample(arms)  # as published
    return ClippedNormal(centers=tuple((uniform * width + (0.5 - width / 2)).tolist()))


def _means(argument: str, values: Sequence[RationalLike]) -> tuple[float, ...]:
    exact = [rational(argument, value) for value in _listed(argument, values)]
    if not exact:
        raise InvalidParameter(argument, (), "must contain at least one arm")
    for value in exact:
        if not 0 <= value <= 1:
            raise InvalidParameter(argument, value, "must lie in [0, 1], the range of rewards")
    return tuple(map(float, exact))


def _listed(argument: str, values: object) -> Iterable[Any]:
    # A string is iterable too, but contains characters instead of numbers.
    one = isinstance(values, np.ndarray) and values.ndim == 0
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable) or one:
        raise InvalidParameter(argument, values, "must be a sequence")
    return values


def _clipped_mean(center: float, deviation: float) -> float:
    # E[clip(X)] = P(X > 1) + center P(0 < X < 1) + deviation (phi(a) - phi(b)).
    a, b = -center / deviation, (1 - center) / deviation
    inside = 1 - _upper(b) - _upper(-a)
    bent = math.exp(-a * a / 2) - math.exp(-b * b / 2)
    return _upper(b) + center * inside + deviation * bent / math.sqrt(2 * math.pi)


def _upper(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


def _distinct(rewards: Iterable[Any]) -> tuple[tuple[Fraction, ...], tuple[int, ...]]:
    listed = _listed("rewards", rewards)
    held = listed if isinstance(listed, np.ndarray) else np.array([*listed], dtype=object)
    found: dict[Fraction, int] = {}
    if held.dtype == object:
        values, counts = held, np.ones(len(held), dtype=np.int64)
    else:
        values, counts = np.unique(held, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        exact = rational("rewards", value)
        if not 0 <= exact <= 1:
            raise InvalidParameter("rewards", value, "must lie in [0, 1]")
        found[exact] = found.get(exact, 0) + count
    if not found:
        raise InvalidParameter("rewards", (), "must contain a reward for every arm")
    ordered = sorted(found.items())
    return tuple(value for value, _ in ordered), tuple(count for _, count in ordered)
