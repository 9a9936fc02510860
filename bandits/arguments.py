r"""The options of ``dpcore bandit`` as values: each refused by name, before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from bandits.experiment import Experiment
from bandits.presets import preset_of
from bandits.radius import RadiusName
from bandits.registry import ScheduleName
from dpcore.errors import InvalidParameter
from dpcore.parameter import rational

__all__ = ["named", "read_experiment", "read_jobs", "whole"]

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
    count = whole("--jobs", text)
    if count != -1 and count < 1:
        raise InvalidParameter("--jobs", text, "must be a whole number >= 1, or -1: one a core")
    return count


def read_experiment(  # noqa: PLR0913  # one for each option
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
        return Experiment(
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
    except InvalidParameter as error:
        raise named(error) from None


def named(error: InvalidParameter) -> InvalidParameter:
    r"""The refusal as a user of the command reads it: an argument is an option.

    >>> named(InvalidParameter("epsilon", "0", "must be > 0")).argument
    '--epsilon'
    """
    argument = error.argument
    option = f"--{argument}" if argument in _NAMED else _OPTIONS.get(argument, argument)
    return InvalidParameter(option, error.value, error.reason)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
