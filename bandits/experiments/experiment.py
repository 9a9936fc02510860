r"""A simulated experiment: a run for every combination of algorithm, epsilon and instance.

An instance is one simulated world of the preset. The random draws of a run do not depend on other
runs. They are a function of (seed, preset, algorithm, epsilon, instance), and not of the number of
processes or the order of the runs. Simulated runs draw their noise from a seed, so they are not
private. A user takes part once or, if ``max_visits`` is given, up to that many times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Final

import numpy as np

from bandits.actions import LinearModel
from bandits.batch import arms_and_horizon
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.play import checked_checkpoints, releases_of
from bandits.play_combinatorial import cucb_of
from bandits.policies.combinatorial_ucb import Cucb
from bandits.policies.policy import Policy
from bandits.policies.registry import RunParameters, Setting, WorldKind, read_algorithm, source_of
from bandits.policies.successive_elimination import NAMES, ScheduleName
from bandits.privatizers.deployment import Deployment
from bandits.privatizers.run_guarantee import NEW_USERS, RunGuarantee, Users
from bandits.worlds import Worlds, preset_of
from bandits.worlds.preset import MOST_INSTANCES, Data
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.enclosure import decimal_up
from dpcore.numbers.parameter import Exact, RationalLike, Whole, integer, rational, write_rational
from dpcore.spec_syntax import check_word

_SE: Final = ("se",)
_MASKED: Final = ("dist-dp-se", "dist-rdp-se", "dist-cdp-se")
_PLANNED: Final = (*_MASKED, "cdp-se", "ldp-se", "shuffled-se", "sdp-ae", "vb-sdp-ae")

RECIPE: Final = "dpcore-bandit-cell/3"
r"""The version of the draws, decisions and records of a cell; increase it if these change."""

_MOST_HORIZON: Final = 10**12
_SHARED: Final = [field.name for field in fields(Setting) if field.name not in ("epsilon", "model")]
_LEAST_EPSILON: Final = Fraction(1, 10**6)
_MOST_EPSILON: Final = Fraction(10**3)
# Exact tables of shuffled bits take minutes for smaller values.
_LEAST_OF_BITS: Final = Fraction(1, 10**2)
_LEAST_DELTA_OF_BITS: Final = Fraction(1, 10**30)
_BITS: Final = ("sdp-ae", "vb-sdp-ae", "sdp-dpe", "sdp-pe")
_PURE_SHUFFLE: Final = "shuffled-se"
# For smaller epsilons the long messages of a pure shuffle take minutes to certify, or fail.
_LEAST_OF_MESSAGES: Final = Fraction(1, 10)
_POINTS: Final = 81
_DECADES: Final = 4
_PLAYED_IN: Final[dict[WorldKind, str]] = {
    "arms": "independent arms, such as cz/easy",
    "linear": "linear rewards, such as lzj/fig2",
    "combinatorial": "super arms, such as csb/topk",
}

_ALWAYS: Final = (
    *("preset", "algorithms", "epsilons", "delta", "horizon", "instances", "radius"),
    *("schedule", "arms", "seed", "checkpoints"),
)
_OF_KIND: Final[dict[WorldKind, tuple[str, ...]]] = {
    "arms": (),
    "linear": ("calibration", "users", "alpha"),
    "combinatorial": ("super_arm", "release"),
}
_USUAL: Final[tuple[tuple[str, Any], ...]] = (
    *(("users", None), ("sources", {}), ("failure_probability", "1/10"), ("renyi_tail", None)),
    *(("max_visits", None), ("honest", "1"), ("dropouts", "0"), ("aggregation", "ideal")),
)
r"""Keys and values: :meth:`Experiment.to_json` omits a key that has this value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    r"""The key of one run of an experiment; ``epsilon`` is the exact number as text."""

    algorithm: str
    epsilon: str
    instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    r"""The result of one run of the experiment; :class:`bandits.play.Run` documents most fields.

    ``released`` lists the released mechanisms for the certificate, as (noise, sensitivity, number
    of releases), the first two as text. It is empty for all instances except instance 0.
    """

    algorithm: str
    epsilon: str
    instance: int
    regret: tuple[float, ...]
    pulls: tuple[int, ...]
    active: tuple[int, ...]
    batches: int
    bits_per_user: int
    mean_bits_per_user: float
    numbers: int = 0
    bits_sent: int = 0
    out_of_users: int = 0
    released: tuple[tuple[str, str, int], ...] = ()

    @property
    def task(self) -> Task:
        return Task(algorithm=self.algorithm, epsilon=self.epsilon, instance=self.instance)

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, in order; floats are restored exactly when the JSON is read."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(RunParameters):
    r"""An experiment to run: preset, algorithms, epsilons, horizon and seed.

    Equal experiments give equal results.

    Other fields are those of :class:`~bandits.policies.registry.Setting`. By default, ``schedule``
    is that of the preset for the paper's radius and ``"exact"`` for the exact radius; ``arms`` and
    ``users`` are those of the preset.

    ``checkpoints`` are increasing rounds, the last of which is the horizon; the default is
    :func:`spaced_checkpoints`. ``delta`` is used as in ``Setting``, and to report epsilon.

    >>> small = Experiment(
    ...     preset="cz/easy",
    ...     algorithms=("dist-dp-se",),
    ...     epsilons=("0.5",),
    ...     horizon=9_000,
    ...     instances=2,
    ... )
    >>> from bandits.experiments.runner import run_cells
    >>> [cell.batches for cell in run_cells(small, small.worlds())]
    [3, 3]

    Raises :class:`InvalidParameter` if

    - a name is unknown;
    - an epsilon is outside [10^-6, 10^3], below 10^-2 with shuffled bits, or below 10^-1 for
      shuffled-se with the exact radius;
    - delta is below 10^-30 with shuffled bits;
    - a count is below 1, or the horizon is above 10^12;
    - a value is repeated, or two epsilons are equal as floats.
    """

    preset: str
    algorithms: tuple[str, ...]
    epsilons: tuple[RationalLike, ...]
    horizon: Whole = Whole(at_most=_MOST_HORIZON)
    instances: Whole = Whole(at_most=MOST_INSTANCES)
    delta: Exact = Exact("1e-6", within="(0, 1)")
    schedule: ScheduleName | None = None
    arms: int | None = None
    super_arm: int | None = None
    seed: Whole = Whole(1, at_least=0)
    checkpoints: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        preset = preset_of(self.preset)
        read = tuple(read_algorithm(text) for text in self.algorithms)
        written = tuple(map(str, read))
        epsilons = tuple(rational("epsilon", epsilon) for epsilon in self.epsilons)
        _check_named("algorithms", written)
        _check_named("epsilon", epsilons)
        delta = self.delta  # as given, for the message
        RunParameters.__post_init__(self)
        names = [each.entry.name for each in read]
        for entry in (each.entry for each in read):
            if entry.world != preset.kind:
                reason = f"requires a world with {_PLAYED_IN[entry.world]}"
                raise InvalidParameter("algorithms", entry.name, reason)
        _check_visits(self, names)
        _check_epsilons(self.epsilons, epsilons, names, self.radius)
        for name in names:
            if name in _BITS and self.delta < _LEAST_DELTA_OF_BITS:
                raise InvalidParameter("delta", delta, f"must be >= 1e-30 for {name}")
        schedule = self.schedule
        if schedule is None:
            schedule = "exact" if self.radius == "exact" else preset.schedule
        check_word("schedule", schedule, ScheduleName)
        users = preset.users if self.users is None else integer("users", self.users, at_least=1)
        given = self.checkpoints or spaced_checkpoints(self.horizon)
        checkpoints = checked_checkpoints(given, self.horizon)
        if checkpoints[-1] != self.horizon:
            reason = f"must be increasing and end with {self.horizon}, the horizon"
            raise InvalidParameter("checkpoints", self.checkpoints, reason)
        for name, value in (
            ("algorithms", written),
            ("epsilons", epsilons),
            ("schedule", schedule),
            ("arms", preset.arms_of(self.arms)),
            ("super_arm", preset.super_arm_of(self.super_arm)),
            ("checkpoints", checkpoints),
            ("users", users),
        ):
            object.__setattr__(self, name, value)

    def worlds(self, data: Data = None) -> Worlds:
        r"""The simulated worlds of all instances; ``data`` is the file of a preset that needs one.

        Raises :class:`InvalidParameter` if ``data`` does not fit the preset, or if the horizon is
        below the number of arms.
        """
        preset = preset_of(self.preset)
        found = preset.worlds(self.instances, arms=self.arms, data=data, super_arm=self.super_arm)
        arms_and_horizon(found.arms, self.horizon)
        return found

    def tasks(self) -> Iterator[Task]:
        r"""All runs in the order of the results: algorithms, then epsilons, then instances."""
        for algorithm, epsilon in self.kinds():
            for instance in range(self.instances):
                yield Task(algorithm=algorithm, epsilon=epsilon, instance=instance)

    def kinds(self) -> Iterator[tuple[str, str]]:
        r"""All pairs (algorithm, epsilon) as text, ordered by algorithm and then by epsilon."""
        for algorithm in self.algorithms:
            for epsilon in self.epsilons:
                yield algorithm, write_rational(Fraction(epsilon))

    @property
    def population(self) -> int:
        r"""The number of returning users, by default just enough for a visit in each round.

        >>> back = {"preset": "cz/easy", "algorithms": ("se",), "epsilons": (1,), "instances": 1}
        >>> Experiment(**back, horizon=10**5, max_visits=16).population
        6250
        """
        return self.users or -(-self.horizon // (self.max_visits or 1))

    def users_of(self, policy: Policy[Any], seed: int) -> Users:
        r"""The users of a run of ``policy``; ``seed`` draws the arrivals of returning users."""
        if self.max_visits is None:
            return NEW_USERS
        from bandits.privatizers.returning_users import Pool, SteadyPrivatizer

        if not isinstance(policy.privatizer, SteadyPrivatizer):
            return NEW_USERS
        return Pool(
            users=self.population,
            max_visits=self.max_visits,
            privatizer=policy.privatizer,
            arrivals=np.random.default_rng(seed),
        )

    @property
    def scheduled(self) -> bool:
        r"""Whether ``schedule`` affects any of the algorithms."""
        return not self._names.isdisjoint(NAMES.values())

    @property
    def has_renyi_tail(self) -> bool:
        r"""Whether ``renyi_tail`` affects any of the algorithms."""
        return self.radius == "paper" and "dist-rdp-se" in self._names

    @property
    def _names(self) -> set[str]:
        return {read_algorithm(each).entry.name for each in self.algorithms}

    @property
    def size(self) -> int:
        return len(self.algorithms) * len(self.epsilons) * self.instances

    def setting(
        self, epsilon: RationalLike, arms: int, model: LinearModel | Problem | None = None
    ) -> Setting:
        r"""The setting of a policy at this ``epsilon``, in a world with ``arms`` and ``model``."""
        own = {name: getattr(self, name) for name in _SHARED}
        return Setting(**{**own, "epsilon": epsilon, "arms": arms, "model": model})

    def guarantee(self, algorithm: str, epsilon: RationalLike, arms: int) -> RunGuarantee | None:
        r"""The guarantee of a run of ``algorithm`` for each user, or None without privacy."""
        policy = self.policy(algorithm, epsilon, arms)
        if isinstance(policy, Cucb):
            return policy.guarantee()
        rounds = arms_and_horizon(arms, self.horizon)
        with read_algorithm(algorithm).blamed():
            return self.users_of(policy, 0).guarantee(*releases_of(policy, *rounds))

    def policy(
        self,
        algorithm: str,
        epsilon: RationalLike,
        arms: int,
        model: LinearModel | Problem | None = None,
    ) -> Policy[Any] | Cucb:
        r"""The policy of ``algorithm``, by default for the model of the first instance."""
        preset, named = preset_of(self.preset), read_algorithm(algorithm)
        if model is None and preset.kind != "arms":
            # The policy depends only on the dimension of the actions or the number of base arms.
            model = preset.worlds(1, arms=arms, super_arm=self.super_arm).environments[0].model
        setting = self.setting(epsilon, arms, model)
        combinatorial = preset.kind == "combinatorial"
        return cucb_of(named, setting) if combinatorial else named.policy(setting)

    def to_json(self) -> dict[str, Any]:
        r"""The fields as a JSON object, with exact numbers as text.

        Optional fields with their default value are omitted, to keep older state files valid.
        """
        own = {name: source_of(name) for name in self.algorithms if read_algorithm(name).own}
        plan = self.deployment
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        every |= {"honest": plan.honest, "dropouts": plan.dropouts, "aggregation": plan.aggregation}
        written = _written({**every, "sources": own})
        always = (*_ALWAYS, *_OF_KIND[preset_of(self.preset).kind])
        found = {name: written[name] for name in always}
        return found | {name: written[name] for name, usual in _USUAL if written[name] != usual}


def _written(value: Any) -> Any:
    # Converts to JSON values: exact numbers to text, tuples to lists.
    match value:
        case dict():
            return {name: _written(each) for name, each in value.items()}
        case tuple():
            return [_written(each) for each in value]
        case Fraction():
            return write_rational(value)
    return value


def _check_named(argument: str, values: Sequence[object]) -> None:
    # Raises an error if ``values`` is empty or contains duplicates.
    if not values:
        raise InvalidParameter(argument, ABSENT, "must contain at least one value")
    if len(set(values)) < len(values):
        raise InvalidParameter(argument, ", ".join(map(str, values)), "must be distinct")


def limits(max_visits: int | None, plan: Deployment) -> Iterator[tuple[str, tuple[str, ...]]]:
    r"""Yield, for each feature that a run requires, an error text and the supporting algorithms."""
    if plan.aggregation == "masked":
        yield "does not use secure aggregation; use one of", _MASKED
    if max_visits is not None:
        from bandits.privatizers.returning_users import RETURNING

        yield "does not support returning users; use one of", RETURNING
    if plan.factor != 1:
        yield "does not support dropouts or collusion; use one of", _PLANNED


def _check_visits(experiment: Experiment, names: Sequence[str]) -> None:
    # Raises an error for users that an algorithm or the paper's radius does not support.
    visits, plan = experiment.max_visits, experiment.deployment
    if not isinstance(plan, Deployment):
        raise InvalidParameter("deployment", plan, "must be a Deployment")
    if visits is not None:
        from bandits.privatizers.returning_users import people, visits_of

        object.__setattr__(experiment, "max_visits", visits_of(visits))
        if experiment.users is not None:
            people(experiment.users)
    if experiment.radius == "paper" and (visits is not None or plan.factor != 1):
        reason = "must be exact: the papers assume new users without dropouts"
        raise InvalidParameter("radius", experiment.radius, reason)
    for name in names:
        for why, able in limits(visits, plan):
            if name not in (*able, *_SE):
                raise InvalidParameter("algorithms", name, f"{why}: {', '.join(able)}")


def _check_epsilons(
    given: Sequence[RationalLike], exact: Sequence[Fraction], names: Sequence[str], radius: str
) -> None:
    # Raises an error for epsilons that an algorithm does not support or that are equal floats.
    least = {name: _LEAST_OF_BITS for name in names if name in _BITS}
    if radius == "exact" and _PURE_SHUFFLE in names:
        least[_PURE_SHUFFLE] = _LEAST_OF_MESSAGES
    for text, epsilon in zip(given, exact, strict=True):
        if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
            raise InvalidParameter("epsilon", text, "must lie in [1e-6, 1000]")
        for name, end in least.items():
            if epsilon < end:
                raise InvalidParameter("epsilon", text, f"must be >= {float(end):g} for {name}")
    if len(set(map(decimal_up, exact))) < len(exact):
        reason = "must not contain two epsilons that are printed as the same float"
        raise InvalidParameter("epsilon", ", ".join(map(str, given)), reason)


def spaced_checkpoints(horizon: int) -> tuple[int, ...]:
    """At most 81 rounds in [``horizon``/10^4, ``horizon``], equally spaced on a log scale."""
    spaced = (10 ** (-_DECADES * i / (_POINTS - 1)) for i in range(_POINTS))
    return tuple(sorted({math.ceil(horizon * share) for share in spaced}))
