r"""Figure 5 of Chowdhury and Zhou: arms from MSLR-WEB10K, or from a stand-in in the same format."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bandits.regret_plots import Panel
from bandits.worlds import preset_of
from benchmarks.figures.generated_mslr import letor_text
from benchmarks.figures.section import (
    Cell,
    Check,
    Picture,
    Section,
    guarantee_of,
    is_less,
    of_ratio,
    regret_of,
)
from benchmarks.figures.shared_experiments import EXACT, PAPER, Player, curve, label, power
from benchmarks.figures.sweep import DELTA, Outcomes, ratio

__all__ = ["real_rewards"]

_PRESET: Final = "cz/mslr"
_NAMES: Final = ("dist-dp-se", "dist-rdp-se", "dist-rdp-se:s=100", "dp-se", "se")
_STAND_IN: Final = 1
"""The seed of the stand-in."""


def real_rewards(player: Player) -> Section:
    r"""The study of K = 50 arms from relevances, with the paper's and with exact parameters."""
    if player.mslr is not None:
        return _section(player, player.mslr, "MSLR-WEB10K, or what was given for it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stand-in.txt"
        path.write_text(letor_text(_STAND_IN), encoding="ascii")
        return _section(player, path, "a generated stand-in, NOT MSLR-WEB10K")


def _section(player: Player, path: Path, origin: str) -> Section:
    horizon, epsilons = player.effort.real, preset_of(_PRESET).epsilons
    paper, exact = (
        player.experiment(_PRESET, version, _NAMES, epsilons=epsilons, horizon=horizon, data=path)
        for version in (PAPER, EXACT)
    )
    return Section(
        name="real",
        title="Figure 5: arms from relevances",
        note=(
            f"The data are **{origin}**. Microsoft's data cannot be redistributed; `python -m "
            "benchmarks.figures --mslr train.txt --output DIR` draws the figure from them. Preset "
            "`cz/mslr`: pairs of a query and a page in K = 50 clusters, rewards relevance/4, "
            f"T = {power(horizon)}. All instances have the same arms, in an order and with random "
            "numbers of their own."
        ),
        rows=tuple(_rows(paper, exact, epsilons)),
        checks=tuple(_checks(paper, exact, epsilons)),
        pictures=tuple(
            Picture(
                name=name,
                title=f"Figure 5 on {origin}: {numbers}",
                panels=tuple(
                    Panel(
                        title=f"K = 50, epsilon = {epsilon}",
                        curves=[curve(found[name, epsilon]) for name in _NAMES],
                    )
                    for epsilon in epsilons
                ),
            )
            for name, found, numbers in (
                ("figure-5", paper, "the paper's numbers"),
                ("figure-5-exact", exact, "exact numbers"),
            )
        ),
    )


def _rows(paper: Outcomes, exact: Outcomes, epsilons: Sequence[str]) -> Iterable[dict[str, Cell]]:
    for epsilon in epsilons:
        for name in _NAMES:
            theirs, ours = paper[name, epsilon], exact[name, epsilon]
            pure, at_delta = guarantee_of(ours)
            yield {
                "epsilon": epsilon,
                "algorithm": label(name),
                PAPER: regret_of(theirs),
                EXACT: regret_of(ours),
                "exact/paper": of_ratio(ratio(ours.final, theirs.final)),
                "wrong arm": f"{theirs.wrong}, {ours.wrong}",
                "bits": f"{theirs.bits}, {ours.bits}",
                "pure epsilon": pure,
                f"epsilon at {DELTA}": at_delta,
            }


def _checks(paper: Outcomes, exact: Outcomes, epsilons: Sequence[str]) -> Iterable[Check]:
    for epsilon in epsilons:
        where = f"epsilon {epsilon}"
        for name in _NAMES:
            statement = f"{label(name)} has less regret, exact against paper"
            yield is_less(statement, where, exact[name, epsilon], paper[name, epsilon])
        for better, worse in (
            ("dist-rdp-se", "dist-dp-se"),
            ("dist-rdp-se:s=100", "dist-rdp-se"),
        ):
            statement = f"{label(better)} has less regret than {label(worse)}, paper"
            yield is_less(statement, where, paper[better, epsilon], paper[worse, epsilon])
