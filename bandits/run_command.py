r"""``dpcore bandit run PRESET``, the command itself. ``bandits.cli`` registers :func:`run`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from bandits.experiment import Cell, Experiment
    from bandits.presets import Worlds

__all__ = ["run"]

_INTERRUPTED: Final = 128 + signal.SIGINT

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
        Path | None,
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
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep finished runs in this file, and go on from what it holds.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    output: Annotated[
        Path | None,
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
    try:
        from bandits.arguments import named, read_experiment, read_jobs
        from dpcore.output_file import check_folder

        workers = read_jobs(jobs)
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
            worlds = experiment.worlds(data)
            check_folder("--output", output)
            cells = _played(experiment, worlds, workers, resume)
        except InvalidParameter as error:
            raise named(error) from None
        _publish(experiment, worlds, cells, output, as_json=as_json)
    except KeyboardInterrupt:
        kept = "" if resume is None else f"; go on with --resume {resume}"
        print(f"interrupted: no result{kept}", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


def _played(experiment: Experiment, worlds: Worlds, workers: int, state: Path | None) -> list[Cell]:
    from bandits.experiment import run_cells
    from bandits.store import resume
    from dpcore.progress import progress_bar

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
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    from bandits.render import run_lines
    from bandits.summary import document, rows_of, write_json

    rows = rows_of(experiment, worlds, cells)
    text = write_json(document(experiment, worlds, rows))
    sys.stdout.write(text if as_json else "\n".join(run_lines(experiment, rows)) + "\n")
    sys.stdout.flush()
    if output is not None:
        from bandits.results import write_results

        for warning in write_results(output, experiment, worlds, cells, text):
            print(f"warning: {warning}", file=sys.stderr)
