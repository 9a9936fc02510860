r"""What the server sees in a short bandit run, as the output that an audit tests.

A run has two arms and two batches. The *watched user* is in the first batch and has the reward 0 or
1; the audit tries to distinguish these two cases. All other rewards are fixed so that, without
noise, the reward of the watched user determines whether the second arm is dropped. The server's
view consists of the released sums and the remaining arms. Every run is one call of ``play``. The
policy under audit is wrapped in a :class:`RecordingPolicy`, which records the released sums.
Proofs: docs/proofs/bandits.md.

If users add shares of the noise, ``Privatizer.release`` draws only the total noise. This is correct
only if each share has its intended law. :class:`Devices` therefore runs the whole protocol
(``dpcore.protocols.run_protocol``), so that an audit covers the messages of the users' devices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from accounting.composition.composition_theorems import per_user
from accounting.derive_guarantee import guarantee
from accounting.guarantees.guarantee import Guarantee
from accounting.protocol_guarantees.plan_protocol import protocol_guarantee
from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.elimination_radii import ExactRadius
from bandits.play import play
from bandits.policies.policy import Policy
from bandits.policies.successive_elimination import BatchedElimination, Schedule
from bandits.privatizers.privatizer import Privatizer, Releasing
from bandits.worlds.arm_environments import Environment
from dpcore.errors import InvalidParameter
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.numbers.arrays import Integers
from dpcore.protocols.noisy_sums import LocalSum, ShuffledPure
from dpcore.protocols.run_protocol import IdealAggregation, Shuffler
from dpcore.protocols.run_protocol import run as run_protocol
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.server import Total

PathName: TypeAlias = Literal["release", "devices"]
r"""How sums are released: with ``Privatizer.release``, as in a run, or user by user."""

Views: TypeAlias = npt.NDArray[np.int64]

ARMS: Final = 2

BATCHES: Final = 2
r"""The number of batches in a view."""

FEATURES: Final = (
    "coordinate:0",
    "bandits.audit_targets.target:lead",
    "bandits.audit_targets.target:across",
    "bandits.audit_targets.target:second",
    "coordinate:-1",
)
r"""The features of an audit: the first column; the lead of arm 0 over arm 1; the change of the sum
of arm 0 from the first batch to the second; the sum of arm 0 in the second batch, which does not
contain the watched user; and the remaining arms. Noise shared by two sums would cancel in the lead
or the change. The remaining arms reveal a policy that reads rewards.
"""

ABSENT: Final = -(1 << 62)
r"""The value that stands for a sum that was not released; it is smaller than every sum."""

_WIDEST: Final = Fraction(3, 4)
_MOST_PULLS: Final = 1 << 14
_MOST_DEVICES: Final = 16
_FAR: Final = 1 << 40


class ServerView(ABC):
    r"""What the server sees in a short run, with the audited features and the guarantee."""

    __slots__ = ()

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        r"""The names of the functions of a view whose values are audited."""

    @abstractmethod
    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        r"""Draw the views of ``runs`` runs, one per row; the watched user has ``reward``."""

    @abstractmethod
    def curve(self) -> Guarantee:
        r"""The guarantee of all releases that contain the watched user's reward."""


def claim_of(name: str, found: Guarantee | None) -> Guarantee:
    r"""Return the guarantee ``found``; if it is None, raise an error about privatizer ``name``."""
    if found is None:
        raise InvalidParameter(
            "privatizer", name, "must be private: a non-private policy has no guarantee"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class View(ServerView):
    r"""The server's view of a run of ``policy`` with two arms, fixed batch sizes and fixed rewards.

    In batch b + 1, ``sizes[b]`` users pull each arm. The watched user is the first to pull arm 0.
    If the reward of this user is 1, then ``ones[b][a]`` users have reward 1 among those who pull
    arm a in batch b + 1. ``visits`` is 2 if the watched user returns in the second batch, otherwise
    1. Each row of :meth:`views` contains, in this order:

    - the message of the watched user, only with ``path="devices"`` in the local model, where the
      server sees each message;
    - for each batch and arm, the released sum in steps of the encoding (for shuffled bits, the
      number of ones), or ``ABSENT`` if no sum was released;
    - for each batch, the precision g: a reward of 1 is encoded as g steps. It is the same in every
      view;
    - the remaining arms as a bit mask, in which bit a is set if arm a remains.
    """

    policy: Policy[Any]
    sizes: tuple[int, ...]
    ones: tuple[tuple[int, int], ...]
    path: PathName
    visits: int = 1

    @property
    def privatizer(self) -> Privatizer:
        found = self.policy.privatizer
        if not isinstance(found, Privatizer):
            raise InvalidParameter("policy", self.policy.name, "must release a sum for each arm")
        return found

    @property
    def features(self) -> tuple[str, ...]:
        return (*FEATURES, "bandits.audit_targets.target:both") if self.visits > 1 else FEATURES

    @property
    def horizon(self) -> int:
        r"""The number of rounds in both batches, plus one to observe which arms remain."""
        return ARMS * sum(self.sizes) + 1

    def views(self, reward: int, runs: int, rng: Rng) -> Views:
        privatizer = self.privatizer
        units = [privatizer.precision(size) for size in self.sizes]
        protocol = privatizer.protocol(self.sizes[0])
        local = protocol if isinstance(protocol, LocalSum) and self.path == "devices" else None
        rows = []
        for _ in range(runs):
            by = Devices(of=privatizer) if self.path == "devices" else privatizer
            present = tuple(map(privatizer.reporting, self.sizes))
            fixed = _Fixed(sizes=present, ones=self.ones, reward=reward, visits=self.visits)
            sums, left = play_short(self.policy, by, fixed, self.horizon, rng)
            message = []
            if local is not None and isinstance(by, Devices):
                # The message is known mod m; the representative around 0 is used.
                half = local.modulus // 2
                message.append((by.messages[0] + half) % local.modulus - half)
            rows.append([*message, *sums, *units, left])
        return np.array(rows, dtype=np.int64)

    def curve(self) -> Guarantee:
        # With a relaxed aggregation, both the guarantee and the view are those of the sum alone.
        privatizer, size = self.privatizer, self.sizes[0]
        record, protocol = privatizer.record(size, "the watched release"), privatizer.protocol(size)
        found: Guarantee | None = None
        if record is not None and self.visits > 1:
            found = per_user(guarantee(record.mechanism), max_visits=self.visits)
        elif record is not None:
            found = guarantee(record.mechanism)
        elif protocol is not None:
            found = protocol_guarantee(protocol, privatizer.deployment.counted_on(size))
        return claim_of(privatizer.name, found)


def view_of(policy: Policy[Any], *, path: PathName = "release", visits: int = 1) -> View:
    r"""Choose the batches and rewards of the audited run of ``policy``.

    Batched elimination gets a shorter schedule. The number of users per arm in its first batch is
    the smallest power of two that can resolve a difference of 3/4 between two means (at most 16
    with ``path="devices"``). In the local model without devices, the first batch has a single user
    per arm, so that the released sum is the message of the watched user. In every batch the number
    of ones of arm 1 is the largest for which arm 1 would be dropped without noise. If ``visits`` is
    2, all other rewards are 1, so that there is a second batch.
    """
    found = _short_view(policy, path)
    if visits == 1:
        return found
    full = tuple((n, n) for n in map(found.privatizer.reporting, found.sizes))
    return replace(found, ones=full, visits=visits)


def _short_view(policy: Policy[Any], path: PathName) -> View:
    if not isinstance(policy, BatchedElimination) or policy.most is not None:
        return _view(policy, path)
    local = isinstance(policy.privatizer.protocol(1), LocalSum)
    if path == "devices":
        most = _MOST_DEVICES
    else:
        most = 1 if local else _MOST_PULLS
    radius = policy.radius
    if isinstance(radius, ExactRadius):
        radius = ExactRadius(batches=BATCHES)
    first = 1
    while True:
        schedule = Schedule(first=first, growth=2)
        found = _view(replace(policy, schedule=schedule, radius=radius), path)
        if first == most or found.ones[0][1] >= (1 - _WIDEST) * first:
            return found
        first *= 2


def _view(policy: Policy[Any], path: PathName) -> View:
    # The sizes and the numbers of ones are found by calling the policy with sums without noise.
    privatizer = policy.privatizer
    reporting = privatizer.reporting if isinstance(privatizer, Privatizer) else int
    state = policy.init(ARMS, _FAR)
    sizes: list[int] = []
    for _ in range(BATCHES):
        choice = policy.choose(state)
        if not isinstance(choice, Pulls) or len({*choice.counts}) > 1:
            raise InvalidParameter("policy", policy.name, "must pull both arms equally often")
        sizes.append(choice.counts[0])
        stay = reporting(sizes[-1])
        state = policy.observe(state, _released(stay, stay))
    state = policy.init(ARMS, ARMS * sum(sizes) + 1)
    ones = []
    for size in sizes:
        # Only reporting users count: rewards of others are not in the sums.
        stay = reporting(size)
        ones.append((stay, _most_dropped(policy, state, stay)))
        state = policy.observe(state, _released(stay, stay))
    return View(policy=policy, sizes=tuple(sizes), ones=tuple(ones), path=path)


def _released(first: int, second: int) -> Released:
    # Sums without noise to query the policy; they contain no user's reward.
    return Released((ReleasedSum(Fraction(first)), ReleasedSum(Fraction(second))))


def _most_dropped(policy: Policy[Any], state: Any, size: int) -> int:
    # The largest sum for which arm 1 is dropped if all rewards of arm 0 are 1; 0 if there is none.
    def kept(other: int) -> bool:
        after = policy.choose(policy.observe(state, _released(size, other)))
        return not isinstance(after, Commit)

    return bisect_left(range(1, size), x=True, key=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed(Environment):
    # The world of a single run, with given sums and the watched user's reward.
    sizes: tuple[int, ...]
    ones: tuple[tuple[int, int], ...]
    reward: int
    visits: int
    pulled: list[int] = field(default_factory=lambda: [0] * ARMS)

    @property
    def means(self) -> tuple[float, ...]:
        return (1.0, 0.5)

    def _encoded_sum(
        self,
        arm: int,
        pulls: int,
        precision: int,
        world: np.random.Generator,  # noqa: ARG002  # nothing is drawn
    ) -> int:
        batch = self.pulled[arm]
        self.pulled[arm] += 1
        if pulls != self.sizes[batch]:
            raise InvalidParameter(
                "pulls", pulls, f"must be {self.sizes[batch]}, as planned for this batch"
            )
        held = self.ones[batch][arm]
        if batch < self.visits and arm == 0:
            held += self.reward - 1
        # The encodings of 0 and 1 need no rounding.
        return held * precision


def _of(name: str) -> Any:
    # The attribute or method of this name of the wrapped object ``of``.
    return property(lambda self: getattr(self.of, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingPolicy(Policy[Any]):
    r"""A wrapper of a policy (``of``) that uses ``privatizer`` and records every observation."""

    of: Policy[Any]
    privatizer: Releasing[Any] = field()
    seen: list[tuple[Any, Released]] = field(default_factory=list)

    name = _of("name")
    init = _of("init")
    choose = _of("choose")
    sizes = _of("sizes")

    def observe(self, state: Any, released: Released) -> Any:
        self.seen.append((state, released))
        return self.of.observe(state, released)

    def steps(self) -> list[int]:
        r"""The released sum of each action in each batch, in steps, or ``ABSENT``.

        Each sum is an integer, the total of the encodings plus noise. Raises
        :class:`InvalidParameter` if a released sum is not an integer number of steps.
        """
        privatizer: Any = self.privatizer
        found = [ABSENT] * (BATCHES * ARMS)
        for batch, (state, released) in enumerate(self.seen[:BATCHES]):
            for ask in self.of.choose(state).asks:  # type: ignore[union-attr]  # not a Commit
                size = privatizer.size_of(ask)
                unit, noise = privatizer.encoding(size), privatizer.noise(size)
                centre = noise.mean if isinstance(noise, Binomial) else Fraction(0)
                for action in ask.actions:
                    total = released.sums[action]
                    steps = (total - ask.users * unit.low) / unit.step + centre
                    if steps.denominator != 1:
                        raise InvalidParameter("released", total, "must be a whole number of steps")
                    found[batch * ARMS + action] = int(steps)
        return found


_WORLD: Final = np.random.default_rng(0)  # nothing is drawn from it: rewards are fixed


def play_short(
    policy: Policy[Any], privatizer: Releasing[Any], fixed: Environment, horizon: int, rng: Rng
) -> tuple[list[int], int]:
    r"""Run ``policy`` once; return its released sums in steps and a bit mask of remaining arms."""
    watching = RecordingPolicy(of=policy, privatizer=privatizer)
    run = play(watching, fixed, horizon=horizon, world=_WORLD, rng=rng)
    return watching.steps(), sum(1 << arm for arm in run.active)


_BATCH: Final = "devices"
_NOBODY: Final[Mapping[str, Step]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices(Privatizer):
    r"""A wrapper of a privatizer (``of``) that runs the protocol of all users for each release.

    Rewards must be 0 or 1. The released sums have the same law as those of the wrapped privatizer.
    """

    of: Privatizer
    messages: list[int] = field(default_factory=list, compare=False, repr=False)

    name = _of("name")
    epsilon = _of("epsilon")
    assumptions = _of("assumptions")
    relaxed = _of("relaxed")
    deployment = _of("deployment")
    least_noise = _of("least_noise")
    protocol = _of("protocol")

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        protocol = self.protocol(pulls)
        ones, rest = divmod(self.checked(encoded_sum, pulls), self.precision(pulls))
        if rest:
            must = f"must be a multiple of {self.precision(pulls)}: rewards are 0 or 1 here"
            raise InvalidParameter("encoded_sum", encoded_sum, must)
        # The last users drop out before sending their message.
        gone = pulls - self.reporting(pulls)
        held = np.repeat([0, 1, 0], [pulls - gone - ones, ones, gone])
        vanish = {str(place): Step.INPUT for place in range(pulls - gone, pulls)}
        match protocol:
            case None:
                raise InvalidParameter(
                    "of", self.of.name, "must be private: only private protocols have devices"
                )
            case ShuffledPure():
                # A relaxed aggregation is assumed and not implemented; the exact sum is a special
                # case.
                sent = protocol.randomize(held[: pulls - gone], rng=rng)
                self.messages.append(int(sent[0]))
                return ReleasedSum(protocol.analyze(sum(sent.tolist()) % protocol.modulus))
            case BinaryShuffle() | PureShuffle():
                below: IdealAggregation | Shuffler = Shuffler()
            case _:
                below = _Seen(modulus=protocol.modulus, per_user=True, noted=self.messages)
        outcome = run_protocol(protocol, held, below, batch=_BATCH, vanish=vanish, rng=rng)
        return ReleasedSum(cast(Fraction, outcome.estimate))  # a sum has one estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen(IdealAggregation):
    # An ideal aggregation that records the message of the first user.
    noted: list[int]

    def total(
        self,
        messages: Mapping[str, Integers],
        vanish: Mapping[str, Step] = _NOBODY,
        *,
        rng: Rng = SYSTEM,
    ) -> Total:
        self.noted.append(int(next(iter(messages.values()))[0]))
        return IdealAggregation.total(self, messages, vanish, rng=rng)
