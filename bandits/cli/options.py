r"""The options of ``dpcore bandit`` as values: each refused by name, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from bandits.experiments.experiment import Experiment, checked_jobs
from bandits.policies.registry import ScheduleName
from bandits.radius.radius import RadiusName
from bandits.worlds import preset_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational

__all__ = ["named", "read_experiment", "read_jobs", "read_path", "whole"]

_OPTIONS: Final = {
    "preset": "PRESET",
    "algorithm": "--algorithms",
    "worlds": "--instances",
    "resume": "--resume",
}
_NAMED: Final = (
    "algorithms",
    "arms",
    "checkpoints",
    "data",
    "delta",
    "epsilon",
    "horizon",
    "instances",
    "jobs",
    "radius",
    "schedule",
    "seed",
)


def whole(argument: str, text: str) -> int:
    r"""A whole number, however it is written; its range is checked where it is used.

    >>> whole("--horizon", "1e6")
    1000000
    """
    exact = rational(argument, text)
    if exact.denominator != 1:
        raise InvalidParameter(argument, text, "must be a whole number, e.g. 1000 or 1e6")
    return int(exact)


def read_jobs(text: str) -> int:
    r"""How many processes draw; -1: one for each core.

    >>> read_jobs("2"), read_jobs("-1")
    (2, -1)
    """
    try:
        return checked_jobs(whole("--jobs", text))
    except InvalidParameter as error:
        raise InvalidParameter("--jobs", text, error.reason) from None


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
) -> Experiment:
    r"""The experiment that the options spell; what is left out is the preset's.

    >>> read_experiment("cz/easy", epsilons=["0.5"], horizon="1e5").instances
    20

    Raises :class:`InvalidParameter`, naming the option.
    """
    try:
        own = preset_of(preset)
        experiment = Experiment(
            preset=own.name,
            algorithms=_names(algorithms) if algorithms is not None else own.algorithms,
            epsilons=tuple(epsilons) if epsilons else own.epsilons,
            delta=delta if delta is not None else own.delta,
            horizon=own.horizon if horizon is None else whole("--horizon", horizon),
            instances=own.instances if instances is None else whole("--instances", instances),
            radius=cast(RadiusName, radius),
            schedule=cast(ScheduleName | None, schedule),
            arms=None if arms is None else whole("--arms", arms),
            seed=whole("--seed", seed),
        )
        if schedule is not None and not experiment.scheduled:
            names = ", ".join(experiment.algorithms)
            raise InvalidParameter("schedule", schedule, f"has no effect on {names}: leave it out")
        return experiment
    except InvalidParameter as error:
        raise named(error) from None


def named(error: InvalidParameter) -> InvalidParameter:
    r"""The refusal as a user of the command reads it: an argument is an option.

    >>> named(InvalidParameter("epsilon", "0", "must be > 0")).argument
    '--epsilon'
    """
    argument = error.argument
    known = argument.partition(" ")[0] in _NAMED
    option = f"--{argument}" if known else _OPTIONS.get(argument, argument)
    return InvalidParameter(option, error.value, error.reason)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
