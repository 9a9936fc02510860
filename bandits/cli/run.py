r"""``dpcore bandit run PRESET``, the command itself. ``bandits.cli`` registers :func:`run`."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dpcore.command.options import read_jobs
from dpcore.command.terminal import say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from bandits.play import Run

__all__ = ["run"]

_INTERRUPTED: Final = 128 + signal.SIGINT
_NOTHING: Final = "no result"
_HALFWAY: Final = "the result was being written, and is whole only in a folder with rows.json"

_WHAT: Final = "What is played"
_HOW: Final = "How it is played"
_RESULT: Final = "The result"


def run(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET", help="A world or data set from dpcore bandit list.")
    ],
    *,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Separated by commas, e.g. dist-dp-se,dist-rdp-se:s=100. (default: the preset's)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EPSILON",
            help="The epsilon of each user; repeatable. (default: the preset's)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            metavar="DELTA",
            help="The delta of each user. Algorithms with shuffled bits are built to keep it; of "
            "others epsilon is reported at it. (default: 1e-6)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "-T",
            "--horizon",
            metavar="T",
            help="Rounds in each run, e.g. 1e6. (default: the preset's)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many worlds to draw; each is played once. (default: the preset's)",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="Arms in each world. (default: the preset's)", rich_help_panel=_WHAT
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="The data file that cz/mslr or obd needs; repeatable for cz/mslr.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Your own rewards in place of the preset's arms: a CSV of numbers in [0, 1], a "
            "column for each arm, drawn with replacement.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    radius: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="Confidence intervals: exact (proven for the noise used), or paper (its formula).",
            rich_help_panel=_HOW,
        ),
    ] = "exact",
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Batch lengths: exact (fit for the noise), paper (2^b) or released (4^b, its "
            "code). (default: exact with --radius exact, else the preset's)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="The chance that a run drops the best arm, e.g. 1e-3, or 1/T as in the theorems. "
            "(default: 0.1)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    renyi_tail: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="The h of dist-rdp-se in --radius paper: printed (the paper) or released (its "
            "code). (default: released with --schedule released, else printed)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Noise of linear algorithms: exact (the least that keeps the promise), paper (its "
            "formula; the result says what it keeps) or pure (Laplace, no delta). (default: exact)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many users there are: for a linear world, where nobody is a client twice, "
            "or for --visits. (default: the preset's, or T/B)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="ALPHA",
            help="Phase l of a linear algorithm has 2^(ALPHA l) clients, 0 < ALPHA < 1. "
            "(default: 0.8)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    super_arm: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="Size of super arms. (default: the preset's)", rich_help_panel=_WHAT
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="How cucb-dp releases sums: tree, doubling or factorisation. (default: doubling, "
            "tree with --radius paper)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    visits: Annotated[
        str | None,
        typer.Option(
            metavar="B",
            help="Users may return, up to B visits each; epsilon and delta are for all visits of a "
            "user. (default: every user is new)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    honest: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="The share of users who keep their noise secret, e.g. 90%. (default: 100%)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    dropouts: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="The share of a release's users who vanish, e.g. 5%; the noise of the others "
            "keeps the promise. (default: 0%)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    aggregation: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="How messages are added up: ideal (in the clear), or masked (secure aggregation, "
            "about 10 ms a reward). (default: ideal)",
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Seed of rewards and noise: the same seed gives the same results.",
            rich_help_panel=_HOW,
        ),
    ] = "1",
    jobs: Annotated[
        str,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            help="How many processes play; -1: one per core. The results are the same.",
            rich_help_panel=_HOW,
        ),
    ] = "1",
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Store finished runs in this file, and continue from it.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Write rows.json, regret.csv, certificates and (with matplotlib) regret.svg.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            metavar="",
            help="Print one JSON document instead of text.",
            rich_help_panel=_RESULT,
        ),
    ] = False,
) -> None:
    r"""Run bandit algorithms in simulated worlds: their regret, and the epsilon of each user.

    Example: dpcore bandit run cz/easy --epsilon 0.5 -T 1e5 --instances 3

    Regret is pseudo-regret; means and standard errors are over instances.
    Noise is simulated from --seed: the guarantees are of the algorithms, with secret noise.
    Exit code: 0 done, 2 usage, 130 Ctrl-C (--resume keeps what is finished).
    """
    stopped = _NOTHING
    try:
        from bandits.cli.options import as_options, read_experiment, read_path
        from bandits.cli.playing import Found, play_cells, promises_for, publish, results_folder
        from bandits.experiments.ownership import refuse_inputs

        workers = read_jobs(jobs)
        folder, state = read_path("--output", output), read_path("--resume", resume)
        if rewards is not None and data:
            raise InvalidParameter("--rewards", rewards, "is in the place of --data: leave one out")
        option, data = ("--data", data) if rewards is None else ("--rewards", [rewards])
        source = [place for text in data or () if (place := read_path(option, text))]
        for place in [*source, None]:
            refuse_inputs(folder, {option: place, "--resume": state})
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
            calibration=calibration,
            users=users,
            alpha=alpha,
            confidence=confidence,
            renyi_tail=renyi_tail,
            super_arm=super_arm,
            release=release,
            visits=visits,
            honest=honest,
            dropouts=dropouts,
            aggregation=aggregation,
            rewards=rewards is not None,
        )
        with as_options(data=option):
            worlds = experiment.worlds(source)
            promises = promises_for(experiment, worlds)
            with results_folder(experiment, folder):
                runs: dict[tuple[str, str], Run] = {}
                wanted = None if folder is None else runs
                cells = play_cells(experiment, worlds, workers, state, wanted)
                stopped = _HALFWAY
                found = Found(experiment=experiment, worlds=worlds, cells=cells, runs=runs)
                publish(found, promises, folder, as_json=as_json)
    except KeyboardInterrupt:
        kept = "" if resume is None else f"; go on with --resume {resume}"
        say([f"interrupted: {stopped}{kept}"], sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
