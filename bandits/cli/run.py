r"""``dpcore bandit run PRESET``, the command itself. ``bandits.cli`` registers :func:`run`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dpcore.command.terminal import page, say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from bandits.experiments.experiment import Cell, Experiment
    from bandits.experiments.summary import Promises
    from bandits.worlds import Worlds

__all__ = ["run"]

_INTERRUPTED: Final = 128 + signal.SIGINT
_NOTHING: Final = "no result"
_HALFWAY: Final = "the result was being written, and is whole only in a folder with rows.json"

_WHAT: Final = "What is played"
_HOW: Final = "How it is played"
_RESULT: Final = "The result"


def run(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="A world that dpcore bandit list shows.")
    ],
    *,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With commas between, e.g. dist-dp-se,dist-rdp-se:s=100. (the preset's)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    epsilon: Annotated[
        list[str] | None,
        typer.Option(help="May be given several times. (the preset's)", rich_help_panel=_WHAT),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="Of shuffled bits, and where every epsilon is reported. (1e-6)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option("-T", "--horizon", help="Rounds, e.g. 1e6. (preset's)", rich_help_panel=_WHAT),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(help="Worlds, each played once. (preset's)", rich_help_panel=_WHAT),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(metavar="K", help="Arms of a world. (preset's)", rich_help_panel=_WHAT),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The data of cz/mslr or obd.", rich_help_panel=_WHAT),
    ] = None,
    radius: Annotated[
        str,
        typer.Option(
            help="Confidence intervals: exact (certified from the noise that is there) or paper.",
            rich_help_panel=_HOW,
        ),
    ] = "exact",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Batches: exact, paper (2^b) or released (4^b). (exact with the exact radius, "
            "else the preset's)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(help="Other rewards and noise; same seed, same file.", rich_help_panel=_HOW),
    ] = "1",
    jobs: Annotated[
        str,
        typer.Option(
            "-j",
            "--jobs",
            help="Processes, -1: one a core. The result is the same.",
            rich_help_panel=_HOW,
        ),
    ] = "1",
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep finished runs in this file, and go on from what it holds.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Write rows.json, regret.csv, certificates and, with matplotlib, regret.svg.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON document on standard output.", rich_help_panel=_RESULT
        ),
    ] = False,
) -> None:
    r"""Play bandit algorithms in a simulated world: what they lose, and what they promise users.

    Example: dpcore bandit run cz/easy --epsilon 0.5 -T 1e5 --instances 3

    Regret is pseudo-regret; means and standard errors are over instances.
    Noise is drawn from the seed: guarantees are the algorithm's, and protect nobody here.
    Exit code: 0 done, 2 usage, 130 Ctrl-C (--resume keeps what is finished).
    """
    stopped = _NOTHING
    try:
        from bandits.cli.options import named, read_experiment, read_jobs, read_path
        from bandits.experiments.ownership import refuse_inputs

        workers = read_jobs(jobs)
        folder, state, source = (
            read_path(option, text)
            for option, text in (("--output", output), ("--resume", resume), ("--data", data))
        )
        refuse_inputs(folder, {"--data": source, "--resume": state})
        experiment = read_experiment(
            preset,
            algorithms=algorithms,
            epsilons=epsilon,
            delta=delta,
            horizon=horizon,
            instances=instances,
            radius=radius,
            schedule=schedule,
            arms=arms,
            seed=seed,
        )
        try:
            worlds = experiment.worlds(source)
            promises = _promises(experiment, worlds)
            with _folder(experiment, folder):
                cells = _played(experiment, worlds, workers, state)
                stopped = _HALFWAY
                _publish(experiment, worlds, cells, promises, folder, as_json=as_json)
        except InvalidParameter as error:
            raise named(error) from None
    except KeyboardInterrupt:
        kept = "" if resume is None else f"; go on with --resume {resume}"
        say([f"interrupted: {stopped}{kept}"], sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


def _promises(experiment: Experiment, worlds: Worlds) -> Promises:
    # Every policy is made here, before a folder or a file is: what cannot be made ends the command.
    from bandits.experiments.summary import promises_of
    from dpcore.command.progress import progress_bar

    kinds = len(experiment.algorithms) * len(experiment.epsilons)
    with progress_bar("preparing", kinds) as progress:
        return promises_of(experiment, worlds.arms, progress=progress)


@contextmanager
def _folder(experiment: Experiment, folder: Path | None) -> Iterator[None]:
    from bandits.experiments.results import check_results
    from dpcore.command.output_file import made_folder

    with made_folder("--output", folder):
        if folder is not None:
            check_results(folder, experiment)
        yield


def _played(experiment: Experiment, worlds: Worlds, workers: int, state: Path | None) -> list[Cell]:
    from bandits.experiments.experiment import run_cells
    from bandits.experiments.state import resume
    from dpcore.command.progress import progress_bar

    with progress_bar("runs", experiment.size) as progress:
        if state is None:
            return run_cells(experiment, worlds, jobs=workers, progress=progress)
        with resume(state, experiment, worlds) as kept:
            return run_cells(
                experiment,
                worlds,
                jobs=workers,
                done=tuple(kept.cells),
                store=kept.append,
                progress=progress,
            )


def _publish(
    experiment: Experiment,
    worlds: Worlds,
    cells: list[Cell],
    promises: Promises,
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    from bandits.cli.render import run_lines
    from bandits.experiments.results import write_results
    from bandits.experiments.summary import document, rows_of, write_json

    rows = rows_of(experiment, cells, promises)
    text = write_json(document(experiment, worlds, rows))
    shown = text if as_json else page(run_lines(experiment, rows))
    # Files first: a reader of standard output may be gone, and what was found must not go with it.
    warnings: list[str] = []
    try:
        if folder is not None:
            warnings.extend(write_results(folder, experiment, worlds, cells, text))
    except InvalidParameter:
        sys.stdout.write(shown)
        raise
    sys.stdout.write(shown)
    sys.stdout.flush()
    for warning in warnings:
        say([f"warning: {warning}"], sys.stderr)
