r"""The options of ``dpcore bandit`` as values: each refused by name, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, cast

from bandits.combinatorial.streams import StreamRelease
from bandits.experiments.experiment import Experiment
from bandits.experiments.people import Visitors, supported
from bandits.policies.setting import ScheduleName
from bandits.privatizers.averages import Calibrated
from bandits.privatizers.deployment import AggregationName, Deployment
from bandits.radius.radius import RadiusName, TailName
from bandits.worlds import FromFile, preset_of
from bandits.worlds.own import OWN
from bandits.worlds.preset import Preset
from dpcore.command.options import named, share
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import whole_number

__all__ = ["as_options", "read_experiment", "read_path"]

_SAME: Final = "algorithms arms checkpoints data delta epsilon horizon instances jobs radius"
_OTHER: Final = "schedule seed resume calibration users alpha confidence honest dropouts release"
_OPTIONS: Final = {
    **{name: f"--{name}" for name in f"{_SAME} {_OTHER}".split()},
    "renyi_tail": "--renyi-tail",
    "super_arm": "--super-arm",
    "max_visits": "--visits",
    "aggregation": "--aggregation",
    "preset": "PRESET",
    "algorithm": "--algorithms",
    "worlds": "--instances",
}
_TAIL: Final = "is of dist-rdp-se with --radius paper"


def read_path(option: str, text: str | None) -> Path | None:
    r"""A place in the file system, None where none was named.

    >>> read_path("--output", "results").name
    'results'

    Raises :class:`InvalidParameter` for the empty text, which would be the folder one is in.
    """
    if text is None:
        return None
    if not text.strip() or "\0" in text:
        raise InvalidParameter(option, repr(text), "must name a place")
    return Path(text)


def read_experiment(  # one for each option
    preset: str,
    *,
    algorithms: str | None = None,
    epsilons: Sequence[str] | None = None,
    delta: str | None = None,
    horizon: str | None = None,
    instances: str | None = None,
    radius: str = "exact",
    schedule: str | None = None,
    arms: str | None = None,
    seed: str = "1",
    calibration: str | None = None,
    users: str | None = None,
    alpha: str | None = None,
    confidence: str | None = None,
    renyi_tail: str | None = None,
    super_arm: str | None = None,
    release: str | None = None,
    visits: str | None = None,
    honest: str | None = None,
    dropouts: str | None = None,
    aggregation: str | None = None,
    rewards: bool = False,
) -> Experiment:
    r"""The experiment that the options spell; what is left out is the preset's.

    >>> read_experiment("cz/easy", epsilons=["0.5"], horizon="1e5").instances
    20

    With ``rewards`` the arms are those of a table of the user's, and the rest is the preset's.

    Raises :class:`InvalidParameter`, naming the option.
    """
    with as_options():
        own = preset_of(preset)
        if rewards and own is not OWN and (own.kind != "arms" or isinstance(own.source, FromFile)):
            reason = f"has rewards of its own: give --rewards to {OWN.name}, or to cz/easy"
            raise InvalidParameter("preset", own.name, reason)
        visitors = Visitors(
            max_visits=None if visits is None else whole_number("max_visits", visits),
            deployment=Deployment(
                honest="1" if honest is None else share("--honest", honest),
                dropouts="0" if dropouts is None else share("--dropouts", dropouts),
                aggregation=cast(AggregationName, aggregation or "ideal"),
            ),
        )
        rounds = own.horizon if horizon is None else whole_number("horizon", horizon)
        experiment = Experiment(
            preset=OWN.name if rewards else own.name,
            algorithms=supported(visitors, own.algorithms) or own.algorithms
            if algorithms is None
            else _names(algorithms),
            epsilons=tuple(epsilons) if epsilons else own.epsilons,
            delta=delta if delta is not None else own.delta,
            horizon=rounds,
            instances=own.instances if instances is None else whole_number("instances", instances),
            radius=cast(RadiusName, radius),
            schedule=cast(ScheduleName | None, schedule),
            arms=None if arms is None else whole_number("arms", arms),
            seed=whole_number("seed", seed),
            calibration=cast(Calibrated, calibration or "exact"),
            users=None if users is None else whole_number("users", users),
            alpha=alpha if alpha is not None else "4/5",
            confidence=_chance(confidence, rounds),
            renyi_tail=cast(TailName | None, renyi_tail),
            super_arm=None if super_arm is None else whole_number("super_arm", super_arm),
            release=cast(StreamRelease, release or _release(own, radius)),
            max_visits=visitors.max_visits,
            deployment=visitors.deployment,
        )
        here, names = f"has no effect in {own.name}", ", ".join(experiment.algorithms)
        on, linear = f"has no effect on {names}", own.kind == "linear"
        sums = bool({*experiment.algorithms} & {"cucb-dp", "cucb-dp2"})
        confident = experiment.scheduled or "dp-se" in experiment.algorithms
        for argument, given, used, why in (
            ("calibration", calibration, linear, here),
            ("users", users, linear or visits is not None, here),
            ("alpha", alpha, linear, here),
            ("release", release, sums, on),
            ("confidence", confidence, confident, on),
            ("renyi_tail", renyi_tail, experiment.has_renyi_tail, _TAIL),
            ("schedule", schedule, experiment.scheduled, on),
        ):
            if given is not None and not used:
                raise InvalidParameter(argument, given, f"{why}: leave it out")
        return experiment


def as_options(**others: str) -> AbstractContextManager[None]:
    r"""Errors about an argument name the option that a user of the command typed.

    ``others`` are names of options that stand for an argument in this run.

    >>> with as_options():
    ...     raise InvalidParameter("epsilon", "0", "must be > 0")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --epsilon = 0: must be > 0
    """
    return named(**{**_OPTIONS, **others})


def _release(preset: Preset, radius: str) -> StreamRelease:
    # The tree is the paper's, and so are its bonuses; doubling blocks have a seventh of its regret.
    return "doubling" if preset.kind == "combinatorial" and radius == "exact" else "tree"


def _chance(text: str | None, horizon: int) -> str:
    # The theorems take p = 1/T.
    if text is None:
        return "1/10"
    return f"1/{horizon}" if text.strip() == "1/T" else text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
