r"""Remarks of Li, Zhou and Ji (LZJ): one client per round, covers of actions, pure epsilon."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from bandits.experiments.experiment import Experiment
from bandits.policies.linear_phased_elimination import PhasedElimination, clients_needed
from bandits.policies.registry import read_algorithm
from bandits.privatizers.vector_averages import Calibrated
from bandits.regret_plots import Panel
from bandits.worlds import preset_of
from benchmarks.figures.section import (
    Cell,
    Check,
    Picture,
    Section,
    falls,
    is_less,
    is_same,
    regret_of,
    rounded,
)
from benchmarks.figures.shared_experiments import Player, curve, power
from benchmarks.figures.sweep import Outcome, ratio
from dpcore.numbers.parameter import rational, write_rational

__all__ = ["linear_remarks"]

_ALPHAS: Final = ("1/2", "2/3", "4/5")
_LAST: Final = _ALPHAS[-1]
_COVERS: Final = {"ball": {"1/2": 64, "1/4": 311, "1/8": 1912}, "box": {"1/4": 64, "1/8": 512}}
_NOISE: Final[dict[Calibrated, str]] = {"exact": "Gaussian, or none", "pure": "Laplace"}
_Found = dict[str, Outcome]
_NOTE = (
    "`lzj/clients` has 1000 actions in R^20, rewards -1 or 1, and identical users (sigma = "
    "0), with (1, 1e-6) or, with *Laplace* noise (Remark C.9), 1-DP. `-pe` has one client per "
    "round; `-dpe` has 2^(alpha l) clients in phase l, who observe all its rounds and send "
    "averages; *users* is the largest number of users that a run may need. `lzj/fig2` is the "
    "world of the figure, with (10, 0.25) or 10-DP. `lzj/ball` and `lzj/box` are the unit "
    "ball of R^3 and the largest box in it, replaced by a cover with the stated number of "
    "*actions* (Remark 3.1), with the users and guarantees of the figure; regret is measured "
    "against the best point of the whole set. *best lost* counts the runs that dropped the "
    "best available action. Values are means with standard errors."
)


def linear_remarks(player: Player) -> Section:
    r"""The study of clients per phase or round (Section 8), covers (3.1) and pure epsilon (C.9)."""
    horizon = player.effort.linear[len(player.effort.linear) // 2]
    rows: list[dict[str, Cell]] = []

    def played(preset: str, names: str, **settings: Any) -> _Found:
        experiment = _experiment(player, preset, names, horizon, **settings)
        every, epsilon = player.outcomes(experiment), _epsilon(experiment)
        found = {name: every[name, epsilon] for name in experiment.algorithms}
        rows.extend(_row(experiment, outcome) for outcome in found.values())
        return found

    alone = played("lzj/clients", "pe,cdp-pe,ldp-pe")
    shared = {alpha: played("lzj/clients", "dpe,cdp-dpe", alpha=alpha) for alpha in _ALPHAS}
    pure = played("lzj/clients", "cdp-pe,ldp-pe", calibration="pure")
    gauss = played("lzj/fig2", "cdp-dpe,ldp-dpe")
    pure |= played("lzj/fig2", "cdp-dpe,ldp-dpe", calibration="pure")
    covers = {
        (shape, radius): played(f"lzj/{shape}", "dpe,cdp-dpe", arms=count)
        for shape, sizes in _COVERS.items()
        for radius, count in sizes.items()
    }
    return Section(
        name="remarks",
        title="Linear bandits: one client per round, covers, pure epsilon (LZJ, Section 8)",
        note=f"T = {power(horizon)}, certified widths. {_NOTE}",
        rows=tuple(rows),
        checks=tuple(_checks(alone, shared, pure, gauss, covers)),
        pictures=(
            Picture(
                name="lzj-remarks",
                title="One client per round, clients per phase, and covers of the ball",
                panels=(
                    Panel(
                        title="sigma = 0, (1, 1e-6), alpha = 4/5",
                        curves=[
                            curve(found[name], name)
                            for found, name in (
                                (alone, "pe"),
                                (alone, "cdp-pe"),
                                (shared[_LAST], "dpe"),
                                (shared[_LAST], "cdp-dpe"),
                            )
                        ],
                    ),
                    Panel(
                        title="cdp-dpe in the unit ball of R^3 at (10, 0.25), by covers",
                        curves=[
                            curve(found["cdp-dpe"], f"radius {radius}")
                            for (shape, radius), found in covers.items()
                            if shape == "ball"
                        ],
                    ),
                ),
            ),
        ),
    )


def _experiment(
    player: Player, preset: str, names: str, horizon: int, **settings: Any
) -> Experiment:
    own = preset_of(preset)
    return Experiment(
        preset=preset,
        algorithms=tuple(names.split(",")),
        epsilons=own.epsilons,
        delta=own.delta,
        horizon=horizon,
        instances=player.effort.instances,
        seed=player.seed,
        **settings,
    )


def _epsilon(experiment: Experiment) -> str:
    (epsilon,) = experiment.epsilons
    return write_rational(rational("epsilon", epsilon))


def _row(experiment: Experiment, outcome: Outcome) -> dict[str, Cell]:
    policy = _policy(experiment, outcome.label)
    alone = policy.clients == "one-a-round"
    return {
        "world": experiment.preset,
        "actions": policy.model.actions.count,
        "algorithm": outcome.label,
        "noise": _NOISE[experiment.calibration],
        "alpha": "-" if alone else str(experiment.alpha),
        "users": clients_needed(policy, experiment.horizon),
        "regret": regret_of(outcome),
        "best lost": outcome.wrong,
        "numbers sent": rounded(outcome.numbers),
    }


def _policy(experiment: Experiment, name: str) -> PhasedElimination:
    (world,) = preset_of(experiment.preset).worlds(1, arms=experiment.arms).environments
    setting = experiment.setting(_epsilon(experiment), world.arms, world.model)
    policy = read_algorithm(name).policy(setting)
    assert isinstance(policy, PhasedElimination)  # true for all names used here
    return policy


def _checks(
    alone: _Found,
    shared: dict[str, _Found],
    pure: _Found,
    gauss: _Found,
    covers: dict[tuple[str, str], _Found],
) -> Iterable[Check]:
    one, ten = "lzj/clients, (1, 1e-6)", "lzj/fig2, (10, 0.25)"
    most = shared[_LAST]
    yield is_less("dpe has less regret than pe", one, most["dpe"], alone["pe"])
    yield is_less("cdp-dpe has less regret than cdp-pe", one, most["cdp-dpe"], alone["cdp-pe"])
    yield is_same("cdp-pe has the regret of pe, within a tenth", one, alone["cdp-pe"], alone["pe"])
    yield falls(
        "the cost of privacy of cdp-dpe, its regret divided by that of dpe, falls as alpha grows",
        f"{one}, alpha {', '.join(_ALPHAS)}",
        [ratio(found["cdp-dpe"].final, found["dpe"].final) for found in shared.values()],
    )
    for name in ("cdp-pe", "ldp-pe"):
        statement = f"{name} has less regret with Laplace noise than with Gaussian noise"
        yield is_less(statement, one, pure[name], alone[name])
    for name in ("cdp-dpe", "ldp-dpe"):
        statement = f"{name} has less regret with Gaussian noise than with Laplace noise"
        yield is_less(statement, ten, gauss[name], pure[name])
    for shape, name in (("ball", "dpe"), ("ball", "cdp-dpe"), ("box", "cdp-dpe")):
        fine, rough = (covers[shape, radius][name] for radius in ("1/8", "1/4"))
        statement = f"{name} has less regret with a cover of radius 1/8 than 1/4"
        yield is_less(statement, f"lzj/{shape}", fine, rough)
        yield _within(name, shape, "1/8", fine)


def _within(name: str, shape: str, radius: str, outcome: Outcome) -> Check:
    found = regret_of(outcome)
    held = found["value"] + 2 * found["error"] <= float(Fraction(radius))
    return Check(
        statement=f"{name} has a regret per round of at most the radius, 1/8",
        where=f"lzj/{shape}",
        verdict="holds" if held else "not decided",
        figures=f"{found['value']:.3g} ± {found['error']:.2g}",
    )
