r"""Parse the options of ``dpcore bandit``; errors name the option."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, cast

from bandits.combinatorial.streams import StreamRelease
from bandits.experiments.experiment import Experiment, limits
from bandits.policies.registry import read_algorithm
from bandits.privatizers.protocols import AggregationName, Deployment
from bandits.worlds import FromFile, preset_of
from bandits.worlds.arms import OWN
from bandits.worlds.preset import Preset
from dpcore.command.options import named, share
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import whole_number

_NAMES: Final = (
    "algorithms arms checkpoints data delta epsilon horizon instances jobs radius schedule seed "
    "resume calibration users alpha confidence honest dropouts release renyi_tail super_arm "
    "aggregation"
)
_OPTIONS: Final = {
    **{name: f"--{name.replace('_', '-')}" for name in _NAMES.split()},
    "max_visits": "--visits",
    "preset": "PRESET",
    "algorithm": "--algorithms",
    "worlds": "--instances",
}
_COUNTS: Final = ("horizon", "instances", "arms", "seed", "users", "super_arm")
_TAIL: Final = "is of dist-rdp-se with --radius paper"


def read_path(option: str, text: str | None) -> Path | None:
    r"""A file system path, or None.

    >>> read_path("--output", "results").name
    'results'

    Raises :class:`InvalidParameter` for the empty text, which would be the folder one is in.
    """
    if text is None:
        return None
    if not text.strip() or "\0" in text:
        raise InvalidParameter(option, repr(text), "must name a place")
    return Path(text)


def read_experiment(
    preset: str,
    *,
    algorithms: str | None = None,
    epsilon: Sequence[str] | None = None,
    visits: str | None = None,
    honest: str | None = None,
    dropouts: str | None = None,
    aggregation: str | None = None,
    rewards: bool = False,
    **fields: str | None,
) -> Experiment:
    r"""The experiment for the given options; missing ones are taken from the preset.

    >>> read_experiment("cz/easy", epsilon=["0.5"], horizon="1e5").instances
    20

    ``fields`` are others of the experiment, by name. With ``rewards`` the arms are those of a table
    of the user's, and the rest is the preset's.

    Raises :class:`InvalidParameter`, naming the option.
    """
    with as_options():
        own = preset_of(preset)
        if rewards and own is not OWN and (own.kind != "arms" or isinstance(own.source, FromFile)):
            reason = f"has rewards of its own: give --rewards to {OWN.name}, or to cz/easy"
            raise InvalidParameter("preset", own.name, reason)
        most = None if visits is None else whole_number("max_visits", visits, at_least=1)
        plan = Deployment(
            honest="1" if honest is None else share("--honest", honest),
            dropouts="0" if dropouts is None else share("--dropouts", dropouts),
            aggregation=cast(AggregationName, aggregation or "ideal"),
        )
        given: dict[str, Any] = {name: text for name, text in fields.items() if text is not None}
        given |= {name: whole_number(name, given[name]) for name in _COUNTS if name in given}
        usual: dict[str, Any] = {
            "delta": own.delta,
            "horizon": own.horizon,
            "instances": own.instances,
            "release": _release(own, given.get("radius", "exact")),
        }
        asked = usual | given
        if asked.get("confidence", "").strip() == "1/T":  # as in the theorems
            asked["confidence"] = f"1/{asked['horizon']}"
        experiment = Experiment(
            preset=OWN.name if rewards else own.name,
            algorithms=_playable(own.algorithms, most, plan)
            if algorithms is None
            else _names(algorithms),
            epsilons=tuple(epsilon) if epsilon else own.epsilons,
            max_visits=most,
            deployment=plan,
            **asked,
        )
        here, names = f"has no effect in {own.name}", ", ".join(experiment.algorithms)
        on, linear = f"has no effect on {names}", own.kind == "linear"
        sums = bool({*experiment.algorithms} & {"cucb-dp", "cucb-dp2"})
        own_policies = any(read_algorithm(each).own for each in experiment.algorithms)
        confident = experiment.scheduled or own_policies or "dp-se" in experiment.algorithms
        for argument, used, why in (
            ("calibration", linear, here),
            ("users", linear or visits is not None, here),
            ("alpha", linear, here),
            ("release", sums, on),
            ("confidence", confident, on),
            ("renyi_tail", experiment.has_renyi_tail, _TAIL),
            ("schedule", experiment.scheduled, on),
        ):
            if argument in given and not used:
                raise InvalidParameter(argument, fields[argument], f"{why}: leave it out")
        return experiment


def as_options(**others: str) -> AbstractContextManager[None]:
    r"""Make errors about an argument name the option of the command.

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


def _playable(
    algorithms: tuple[str, ...], max_visits: int | None, plan: Deployment
) -> tuple[str, ...]:
    # Those that can be played so, if any; without privacy everyone can come and go.
    able = [names for _, names in limits(max_visits, plan)]
    found = (name for name in algorithms if all(name in (*names, "se") for names in able))
    return tuple(found) or algorithms


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
