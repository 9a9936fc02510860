r"""The algorithms of ``dpcore bandit`` by name: their parameters and their policies.

With the exact radius, the parameter ``scaling`` of the
:class:`~bandits.privatizers.batch_sums_by_trust_model.SumPrivatizer` of batched elimination is 4
instead of 1. For dist-rdp-se and dist-cdp-se their parameter s sets the scaling, by default to 10.
With the paper's radius, all parameters are those of the algorithm's paper or, with
``schedule="released"``, those of its released code.

Your own policy is written ``file.py:NAME`` or ``package.module:NAME`` and is imported into this
process as trusted code. An audit creates it without arguments. A run passes ``epsilon``, which the
policy must accept, and each of ``delta``, ``horizon``, ``arms`` and ``failure_probability`` that it
accepts.
"""

from __future__ import annotations

import hashlib
import inspect
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from bandits.actions import LinearModel
from bandits.batch import FailureProbability, arms_and_horizon
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.elimination_radii import (
    DpSeRadius,
    ExactRadius,
    PaperRadius,
    Radius,
    RadiusName,
    TailName,
)
from bandits.policies.combinatorial_ucb import FAMILY
from bandits.policies.linear_phased_elimination import FAMILIES, MODELS, Clients, PhasedElimination
from bandits.policies.policy import Policy
from bandits.policies.successive_elimination import (
    NAMES,
    OF_PAPERS,
    BatchedElimination,
    DpSe,
    Schedule,
    ScheduleName,
    ShuffleElimination,
    exact_schedule,
)
from bandits.privatizers.batch_sums_by_trust_model import (
    BitPrivatizer,
    PureShufflePrivatizer,
    SumPrivatizer,
    Trust,
)
from bandits.privatizers.continual_sums_per_arm import StreamRelease
from bandits.privatizers.deployment import EVERYONE, NO_NOISE, Deployment
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.vector_averages import AveragePrivatizer, Calibrated, LinearTrust
from dpcore.cli.imports import UserCode
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import Exact, Whole, check_fields, rational, write_rational
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.spec_syntax import check_word, find_name, read_keys, split_name, word

EXACT_SCALING: Final = 4
r"""The multiple of the paper's g = ceil(epsilon sqrt n) at which rounding is negligible.

Rounding in steps of 1/g adds at most n/(4 g^2) to the variance of a sum, or 1/(64 epsilon^2) for
this g: 1/128 of the variance of discrete Laplace noise, at the cost of two bits per user. (A
certified width has no rounding term; rounding only increases the variance of the mean.)
"""

_SHORTEST: Final = Schedule(first=1, growth=2)
_OF_A_SHARE: Final = Fraction(1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParameters:
    r"""Parameters shared by policies and experiments: the horizon and variants.

    ``failure_probability`` is p, a bound on the probability that the run drops the best arm.
    ``renyi_tail`` is the ``form`` of ``bandits.elimination_radii.PaperRadius`` for Renyi noise;
    None means "released" with the released schedule, and otherwise "printed". ``max_visits`` is the
    largest number of visits of each of ``users`` users (None if users do not return), and
    ``deployment`` plans for dropouts. For linear algorithms, ``calibration`` sets the noise, and
    ``alpha`` sets the growth of the number of clients. ``release`` selects how cucb-dp and cucb-dp2
    release sums.
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

    ``delta`` is used by shuffled bits, linear algorithms, the factorisation of running sums, and
    noise for returning users. ``model`` is what the server knows about a linear or combinatorial
    problem in advance.

    >>> Setting(epsilon="0.5", delta="1e-6", horizon=10**6, arms=10).epsilon
    Fraction(1, 2)

    Raises :class:`InvalidParameter` if epsilon <= 0, delta is outside (0, 1), or the failure
    probability is outside (0, 1/2). The same error is raised if arms < 1, the horizon is below the
    number of arms, or the radius or schedule is unknown.
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
        r"""The probability with which a sum mod m may be decoded incorrectly: 1/T in the paper.

        With the exact radius, the failure probability p of the run is divided among the confidence
        intervals. The share of an interval also covers decoding errors, so the result is at most a
        hundredth of the smallest share. No share is below p/(B (B + 1) K). Here T is the horizon, K
        the number of arms, and B the number of batches that fit in T rounds if two arms are pulled
        1, 2, 4, ... times.

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
        r"""The batch lengths that ``schedule`` names; ``"exact"`` lengths depend on the noise."""
        return OF_PAPERS.get(self.schedule) or exact_schedule(
            privatizer, arms=self.arms, horizon=self.horizon, failure=self.failure_probability
        )


WorldKind: TypeAlias = Literal["arms", "linear", "combinatorial"]
r"""Independent arms, actions with rewards linear in an unknown vector, or super arms."""

_TRUST: Final = {name: trust for trust, name in NAMES.items()}
_MOST_BATCH: Final = 1 << 40
_MOST_MASKED: Final = (1 << 16) - 1
_WHOLE: Final = ("m", "u")
_OF_BITS: Final = ("sdp-ae", "vb-sdp-ae")
_OWN: Final = "a policy of your own"
_GIVEN: Final = ("epsilon", "delta", "horizon", "arms", "failure_probability")

_CLIENTS: Final[dict[Clients, str]] = {
    "growing": "phased elimination of linear actions, with 2^(alpha l) clients per phase",
    "one-a-round": "phased elimination of linear actions, with one client per round",
}
_HIDDEN: Final[dict[LinearTrust, str]] = {
    "none": "without privacy",
    "central": "a trusted server adds discrete Gaussian noise",
    "local": "every client adds discrete Gaussian noise",
    "shuffle": "every client adds random bits, which are shuffled",
}
LINEAR: Final[dict[str, tuple[Clients, LinearTrust, str]]] = {
    **{
        f"{MODELS[trust]}{FAMILIES[clients]}": (clients, trust, f"{sentence}; {hidden}")
        for clients, sentence in _CLIENTS.items()
        for trust, hidden in _HIDDEN.items()
    },
    FAMILIES["fixed"]: ("fixed", "none", "the same as dpe, with u clients in every phase"),
}
r"""Algorithms of linear bandits: their clients, their trust model and a description."""


@dataclass(frozen=True, slots=True)
class Entry:
    r"""The name, description and parameter of an algorithm.

    If the parameter has no ``default``, its value follows from the setting of the run.
    """

    name: str
    sentence: str
    world: WorldKind = "arms"
    parameter: Literal["s", "m", "c", "u"] | None = None
    default: int | None = None


_ARMS: Final = {
    "cdp-se": "batched elimination; a trusted analyzer adds discrete Laplace noise",
    "ldp-se": "batched elimination in the local model: each user adds enough noise for their own "
    "privacy",
    "dist-dp-se": "batched elimination over secure aggregation, with Polya noise shares",
    "dist-rdp-se": "batched elimination over secure aggregation, with Skellam noise shares; s "
    "scales g",
    "dist-cdp-se": "batched elimination over secure aggregation, with discrete Gaussian noise "
    "shares",
    "shuffled-se": "batched elimination over shuffled bits, pure epsilon",
    "dp-se": "Sajed and Sheffet's elimination, with a trusted analyzer",
    "se": "batched elimination without privacy, the baseline",
    "sdp-ae": "elimination over shuffled bits, with batches of m users",
    "vb-sdp-ae": "elimination over shuffled bits, with doubling batches",
}
_PARAMETERS: Final[dict[str, tuple[Literal["s", "m", "c", "u"], int | None]]] = {
    **dict.fromkeys(("dist-rdp-se", "dist-cdp-se"), ("s", 10)),
    **dict.fromkeys(("cucb-ldp1", "cucb-ldp2"), ("c", 4)),
    "sdp-ae": ("m", None),
    FAMILIES["fixed"]: ("u", None),
}
_WORLDS: Final[dict[WorldKind, dict[str, str]]] = {
    "arms": _ARMS,
    "linear": {name: sentence for name, (_, _, sentence) in LINEAR.items()},
    "combinatorial": {name: sentence for name, (_, sentence) in FAMILY.items()},
}

ALGORITHMS: Final = tuple(
    Entry(name, sentence, world, *_PARAMETERS.get(name, ()))
    for world, named in _WORLDS.items()
    for name, sentence in named.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    r"""An algorithm (``entry``) and the value of its parameter, which is None for the default."""

    entry: Entry
    value: Fraction | None = None

    @property
    def own(self) -> bool:
        return self.entry.sentence == _OWN

    def __str__(self) -> str:
        if self.value is None:
            return self.entry.name
        return f"{self.entry.name}:{self.entry.parameter}={write_rational(self.value)}"

    def policy(self, setting: Setting) -> Policy[Any]:
        r"""Create the policy of this algorithm for ``setting``.

        Your own policy is created anew in every call, because state shared between runs would make
        results depend on the number of processes.
        """
        if not self.own:
            return _policy(self, setting)
        given = {each: getattr(setting, each) for each in _GIVEN}
        given["confidence"] = given["failure_probability"]  # the former name
        return own_policy(self.entry.name, self.entry.name, "algorithms", given)

    def blamed(self) -> AbstractContextManager[None]:
        r"""A context in which errors of your own policy name its file and line."""
        return blamed_policy("algorithms", self.entry.name) if self.own else nullcontext()


def read_algorithm(text: str) -> Algorithm:
    r"""Parse an algorithm: a name such as dist-dp-se or dist-rdp-se:s=100, or a policy's path.

    The path of your own policy is ``file.py:NAME`` or ``package.module:NAME``; it is imported when
    the policy is created (:mod:`bandits.policies.registry`).

    >>> str(read_algorithm("dist-rdp-se:s=100")), str(read_algorithm("dist-rdp-se:s=10"))
    ('dist-rdp-se:s=100', 'dist-rdp-se')
    >>> read_algorithm("cpd-se")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: algorithm = cpd-se: did you mean cdp-se? it must be one of ...

    Raises :class:`InvalidParameter` if the name is unknown (the message lists all names), or if a
    parameter is out of range or not supported by the algorithm.
    """
    name, rest = split_name(str(text))
    if is_own(str(text)) and name not in {entry.name for entry in ALGORITHMS}:
        return Algorithm(entry=Entry(name=str(text), sentence=_OWN))
    if name.endswith(".py"):
        raise InvalidParameter("algorithm", text, f"must be {name}:NAME, where NAME is a policy")
    entry = find_name("algorithm", text, {entry.name: entry for entry in ALGORITHMS}, name=name)
    if ":" not in str(text):
        return Algorithm(entry=entry)
    if entry.parameter is None:
        raise InvalidParameter("algorithm", text, f"{name} has no parameters")
    keys = (entry.parameter,)
    value = read_keys("algorithm", text, rest, keys, owner=name, needed=keys)[entry.parameter]
    exact = rational(f"{name}:{entry.parameter}", value)
    whole = entry.parameter in _WHOLE and exact.denominator != 1
    least = 2 if entry.parameter == "c" else 1
    if exact < least or whole or exact > _MOST_BATCH:
        kind = "a whole number" if entry.parameter in _WHOLE else "a number"
        reason = f"must be {kind} in [{least}, 2^40]"
        raise InvalidParameter(f"{name}:{entry.parameter}", value, reason)
    return Algorithm(entry=entry, value=None if exact == entry.default else exact)


@lru_cache(maxsize=1 << 8)
def _policy(algorithm: Algorithm, setting: Setting) -> Policy[Any]:
    name = algorithm.entry.name
    if name in FAMILY:
        reason = f"{name} requires a combinatorial world, such as csb/topk"
        raise InvalidParameter("algorithms", name, reason)
    most: int | None = None
    if setting.max_visits is not None and name != NAMES["none"]:
        # Local import: the module loads the ledger, which runs of new users do not need.
        from bandits.privatizers.returning_users import steady_for

        privatizer: Privatizer = steady_for(
            name,
            epsilon=setting.epsilon,
            delta=setting.delta,
            max_visits=setting.max_visits,
            # A batch may be released in many parts, each of which may be decoded incorrectly.
            failure=setting.failure / setting.horizon,
            deployment=setting.deployment,
        )
        # A release contains at most half of all users, and respects the masked aggregation's limit.
        users = setting.users or -(-setting.horizon // setting.max_visits)
        most = max(users // 2, 1)
        if setting.deployment.aggregation == "masked":
            most = min(most, _MOST_MASKED)
    elif name == "dp-se":
        return DpSe(
            epsilon=setting.epsilon,
            failure=setting.failure,
            failure_probability=setting.failure_probability,
            radius=DpSeRadius() if setting.radius == "paper" else ExactRadius(),
        )
    elif name in LINEAR:
        return _linear(algorithm, setting)
    else:
        privatizer = _privatizer(algorithm, setting)
    if name in _OF_BITS:
        return _of_bits(algorithm, setting, privatizer, most)
    if most is not None and algorithm.value is not None:
        reason = f"{name} has a fixed g for returning users: omit s"
        raise InvalidParameter("algorithms", str(algorithm), reason)
    schedule = setting.schedule_for(privatizer)
    return BatchedElimination(
        privatizer=privatizer,
        schedule=schedule,
        radius=_radius(schedule, setting),
        most=most,
        failure_probability=setting.failure_probability,
    )


def _linear(algorithm: Algorithm, setting: Setting) -> PhasedElimination:
    name = algorithm.entry.name
    model, (clients, trust, _) = setting.model, LINEAR[name]
    if not isinstance(model, LinearModel):
        reason = f"{name} requires a linear world, such as lzj/fig2"
        raise InvalidParameter("algorithms", name, reason)
    return PhasedElimination(
        model=model,
        privatizer=AveragePrivatizer(
            trust=trust,
            epsilon=setting.epsilon,
            delta=setting.delta,
            bound=model.bound,
            calibration=setting.calibration,
        ),
        clients=clients,
        alpha=setting.alpha,
        each=None if algorithm.value is None else int(algorithm.value),
        population=setting.users,
        radius=setting.radius,
    )


def _of_bits(
    algorithm: Algorithm, setting: Setting, privatizer: Privatizer, most: int | None
) -> Policy[Any]:
    if algorithm.entry.name == "vb-sdp-ae":
        return ShuffleElimination(privatizer=privatizer, radius=setting.radius)
    # In Theorem 3.1 of TKMS noise contributes 512 sigma^2/m and rewards 128: both are equal for
    # m = 4 sigma^2, the number of random bits that protect a single user.
    alone = cast(BinaryShuffle, privatizer.protocol(1)).planned_noise.trials
    users = int(alone if algorithm.value is None else algorithm.value)
    batch = users if most is None else min(users, most)
    return ShuffleElimination(privatizer=privatizer, batch=batch, radius=setting.radius)


def _privatizer(algorithm: Algorithm, setting: Setting) -> Privatizer:
    if algorithm.entry.name in (*_OF_BITS, NAMES["binary-shuffle"]):
        return BitPrivatizer(
            epsilon=setting.epsilon,
            delta=setting.delta,
            parameters=setting.radius,
            deployment=setting.deployment,
        )
    trust = _TRUST[algorithm.entry.name]
    if trust == "none":
        return Unprotected()
    if trust == "pure-shuffle":
        if setting.radius == "exact":
            return PureShufflePrivatizer(
                epsilon=setting.epsilon, failure=setting.failure, deployment=setting.deployment
            )
        trust = "shuffled-pure"  # the paper's protocol, over an assumed aggregation
    default: int = algorithm.entry.default or (EXACT_SCALING if setting.radius == "exact" else 1)
    return SumPrivatizer(
        trust=cast(Trust, trust),
        epsilon=setting.epsilon,
        # Theorem 3 of CZ: the sum and the aggregation each fail with q = 1/(2T).
        failure=setting.failure / (2 if trust == "shuffled-pure" else 1),
        scaling=default if algorithm.value is None else algorithm.value,
        parameters=setting.radius,
        deployment=setting.deployment,
    )


def _radius(schedule: Schedule, setting: Setting) -> Radius:
    if setting.radius == "exact":
        return ExactRadius(batches=schedule.batches(setting.horizon))
    own: TailName = "released" if setting.schedule == "released" else "printed"
    return PaperRadius(form=setting.renyi_tail or own)


def is_own(name: str) -> bool:
    r"""Whether ``name`` has the form ``file.py:NAME`` or ``module:NAME`` of a user's own policy."""
    place, colon, attribute = name.rpartition(":")
    module = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return bool(colon) and attribute.isidentifier() and module


def own_policy(
    spelling: str, name: str, argument: str = "target", given: Mapping[str, Any] | None = None
) -> Policy[Any]:
    r"""Load your own policy ``name``; classes and functions are called to create it."""
    attribute = name.rpartition(":")[2]
    code = _own_code(spelling, argument, name)
    found = code.load(name)
    names = {} if isinstance(found, Policy) else _parameters(found)
    needed = [each for each, free in names.items() if not free and each not in (given or {})]
    if needed:
        hint = f"define an instance 'policy = {attribute}(...)' and pass the name of the instance"
        if given:
            hint = f"use only parameters that a run passes: {', '.join(given)}"
        raise code.refused(
            f"{name} has parameters without a default: {', '.join(needed)}. Give each a default, "
            "for example 'privatizer: Privatizer = field(default=SumPrivatizer(...))', or " + hint
        )
    if given and "epsilon" not in names and (isinstance(found, Policy) or callable(found)):
        raise code.refused(f"{name} must be a class or function with a parameter named epsilon")
    own = {key: value for key, value in (given or {}).items() if key in names}
    try:
        made = found if isinstance(found, Policy) else found(**own)
    except Exception as error:
        raise code.failed(error, Path()) from error
    if not isinstance(made, Policy):
        raise code.refused(f"{name}() is a {type(made).__name__}, but must be a bandits.Policy")
    return made


@contextmanager
def blamed_policy(argument: str, spelling: str, name: str = "") -> Iterator[None]:
    r"""Convert errors in your own policy ``name`` to :class:`InvalidParameter` with file and line.

    An error of dpcore is not converted if it does not come from a line of the policy's file and is
    not about the argument ``policy``.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        source = _source(name or spelling).resolve()
        own = [frame for frame in frames if Path(frame.filename).resolve() == source]
        if isinstance(error, DpcoreError) and not own:
            if getattr(error, "argument", "") != "policy":
                raise
            raise InvalidParameter(argument, spelling, str(error)) from error
        said = f"{error}," if isinstance(error, DpcoreError) else f"raised {error!r}"
        frame = [*frames[-1:], *own][-1]
        reason = f"{said} at {Path(frame.filename).name}:{frame.lineno}"
        raise InvalidParameter(argument, spelling, reason) from error


def _own_code(spelling: str, argument: str, name: str) -> UserCode:
    def failed(error: BaseException, _: Path) -> InvalidParameter:
        if not isinstance(error, Exception):
            raise error
        kind = "" if isinstance(error, InvalidParameter) else f"{type(error).__name__}: "
        return InvalidParameter(argument, spelling, f"cannot create {name}: {kind}{error}")

    return UserCode(argument=argument, spelling=spelling, prefix="own", failed=failed)


def source_of(name: str) -> str:
    r"""The SHA-256 of the source file of your own policy ``name``; empty if there is no file."""
    path = _source(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _source(name: str) -> Path:
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    module = _own_code(name, "algorithms", name).module(place)
    return Path(getattr(module, "__file__", None) or "")


def _parameters(maker: Any) -> dict[str, bool]:
    # Each parameter, and whether it has a default. The default of a field with only an annotation
    # is the property of Policy.
    try:
        given = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # not callable, or written in C: the call itself reports it
        return {}
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        one.name: not (one.default is one.empty or isinstance(one.default, property))
        for one in given
        if one.kind not in free
    }
