r"""What ``dpcore bandit run`` does with an experiment: derive, play, write and print."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.command.terminal import page, say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from bandits.experiments.experiment import Cell, Experiment
    from bandits.experiments.summary import Promises
    from bandits.worlds import Worlds

__all__ = ["play_cells", "promises_for", "publish", "results_folder"]


def promises_for(experiment: Experiment, worlds: Worlds) -> Promises:
    r"""Derive what each algorithm promises: every policy is made before a folder or a file is."""
    from bandits.experiments.summary import promises_of
    from dpcore.command.progress import progress_bar

    kinds = len(experiment.algorithms) * len(experiment.epsilons)
    with progress_bar("preparing", kinds) as progress:
        return promises_of(experiment, worlds.arms, progress=progress)


@contextmanager
def results_folder(experiment: Experiment, folder: Path | None) -> Iterator[None]:
    r"""Make the folder of results, or refuse one that holds somebody else's files."""
    from bandits.experiments.results import check_results
    from dpcore.command.output_file import made_folder

    with made_folder("--output", folder):
        if folder is not None:
            check_results(folder, experiment)
        yield


def play_cells(
    experiment: Experiment,
    worlds: Worlds,
    workers: int,
    state: Path | None,
) -> list[Cell]:
    r"""Play every cell that a state file does not hold, and keep it there."""
    from bandits.experiments.playing import resume, run_cells
    from dpcore.command.progress import progress_bar

    stored = nullcontext() if state is None else resume(state, experiment, worlds)
    with progress_bar("runs", experiment.size) as progress, stored as kept:
        return run_cells(
            experiment,
            worlds,
            jobs=workers,
            done=() if kept is None else tuple(kept.cells),
            store=None if kept is None else kept.append,
            progress=progress,
        )


def publish(
    experiment: Experiment,
    worlds: Worlds,
    cells: list[Cell],
    promises: Promises,
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    r"""Write the folder of results, and print the rows"""
    from bandits.cli.render import run_lines
    from bandits.experiments.results import write_results
    from bandits.experiments.summary import document, rows_of, write_json

    rows = rows_of(experiment, cells, promises)
    found = document(experiment, worlds, rows)
    shown = write_json(found) if as_json else page(run_lines(experiment, rows))
    # Files first: a reader of standard output may be gone, and what was found must not go with it.
    warnings: list[str] = []
    try:
        if folder is not None:
            warnings = [*write_results(folder, experiment, worlds, cells, found)]
    except InvalidParameter:
        sys.stdout.write(shown)
        raise
    sys.stdout.write(shown)
    sys.stdout.flush()
    for warning in warnings:
        say([f"warning: {warning}"], sys.stderr)
