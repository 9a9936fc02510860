r"""The command ``dpcore bandit run PRESET``; ``bandits.cli.commands`` registers :func:`run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import typer

from bandits.experiments.experiment import Cell, Experiment, limits
from bandits.policies.registry import read_algorithm
from bandits.privatizers.deployment import AggregationName, Deployment
from bandits.worlds import FromFile, Worlds, preset_of
from bandits.worlds.arm_presets import OWN
from dpcore.cli.files import made_folder
from dpcore.cli.options import argument, flag, named, option, read_jobs, share, with_fields
from dpcore.cli.terminal import aligned, page, progress_bar, say
from dpcore.errors import INTERRUPTED, InvalidParameter
from dpcore.numbers.parameter import whole_number
from dpcore.numbers.rounding import up

if TYPE_CHECKING:
    from bandits.experiments.summary import Guarantees, Row


def _played(experiment: Experiment, worlds: Worlds, workers: int, state: Path | None) -> list[Cell]:
    # Plays the runs that are missing in the state file, and stores them there.
    from bandits.experiments.runner import resume, run_cells

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


def _publish(  # writes the folder of results, and prints the rows
    experiment: Experiment,
    worlds: Worlds,
    cells: list[Cell],
    guarantees: Guarantees,
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    from bandits.experiments.results import write_results
    from bandits.experiments.summary import document, rows_of, write_json

    rows = rows_of(experiment, cells, guarantees)
    found = document(experiment, worlds, rows)
    output = write_json(found) if as_json else page(run_lines(experiment, rows))
    # Files are written first, so that results are saved even if standard output is a closed pipe.
    warnings: list[str] = []
    try:
        if folder is not None:
            warnings = [*write_results(folder, experiment, worlds, cells, found)]
    except InvalidParameter:
        sys.stdout.write(output)
        raise
    sys.stdout.write(output)
    sys.stdout.flush()
    for warning in warnings:
        say([f"warning: {warning}"], sys.stderr)


def run_lines(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    r"""Format the results of an experiment, one line per row."""
    from bandits.experiments.summary import for_each_user, lower_bounds, remarks

    schedule = f"schedule {experiment.schedule}, " if experiment.scheduled else ""
    tail = experiment.renyi_tail or ("released" if experiment.schedule == "released" else "printed")
    chosen = f"Renyi tail {tail}, " if experiment.has_renyi_tail else ""
    if experiment.failure_probability != Fraction(1, 10):
        chosen += f"p = {experiment.failure_probability}, "
    head = (
        f"{experiment.preset}: T = {experiment.horizon:,}, {experiment.instances} instances, "
        f"radius {experiment.radius}, {schedule}{chosen}{_visitors(experiment)}"
        f"seed {experiment.seed}"
    )
    whom = for_each_user(experiment.max_visits)
    table = [("algorithm", "epsilon", "regret/T", "+-", "bits", "guarantee")]
    table += [
        (
            row.algorithm,
            short_epsilon(row.epsilon),
            figure(row.regret_per_round),
            figure(row.standard_error),
            str(row.bits_per_user),
            str(row.guarantee["text"]).removesuffix(whom),
        )
        for row in rows
    ]
    assumed = dict.fromkeys(words for row in rows for words in row.guarantee["assumptions"])
    return [
        head,
        "",
        *aligned(table, right=(1, 2, 3, 4)),
        "",
        "regret/T is the mean over instances +- its standard error; bits is the most of one visit.",
        f"Guarantees are{whom}; noise of this run was simulated.",
        *remarks(rows),
        *(
            f"{bound['theorem']} at epsilon {short_epsilon(bound['epsilon'])}: in the limit at "
            f"least {figure(bound['regret_per_round'])} for any algorithm ({bound['of']})."
            for bound in lower_bounds(experiment)
        ),
        *(f"Assumed: {words}." for words in assumed),
    ]


def _visitors(experiment: Experiment) -> str:
    # The visits and dropouts of users; empty for new users without dropouts.
    plan, visits = experiment.deployment, experiment.max_visits
    found = [] if visits is None else [f"at most {visits} visits"]
    if plan.aggregation != "ideal":
        found.append(f"{plan.aggregation} aggregation")
    if plan.honest != 1:
        found.append(f"honest {float(100 * plan.honest):g}%")
    if plan.dropouts:
        found.append(f"dropouts {float(100 * plan.dropouts):g}%")
    return "".join(f"{each}, " for each in found)


def short_epsilon(value: float) -> str:
    r"""Format an epsilon, rounded up to twelve significant digits."""
    return up(Fraction(repr(value)), _DIGITS)


def figure(value: float | None, digits: int = 3) -> str:
    r"""Format a measured number with ``digits`` significant digits; None becomes a dash."""
    return "-" if value is None else f"{value:.{digits}g}"


_DIGITS: Final = 12
_NOTHING: Final = "no result"
_HALFWAY: Final = "the result was being written; only a folder with rows.json is complete"


_what = partial(option, rich_help_panel="Experiment")
_how = partial(option, rich_help_panel="Execution")
_result = partial(option, rich_help_panel="The result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOptions:
    r"""The options of ``dpcore bandit run`` that define the experiment, as text."""

    algorithms: str | None = _what(
        "NAMES",
        "Algorithms separated by commas, e.g. dist-dp-se,dist-rdp-se:s=100, or your own policy, "
        "own.py:NAME or package.module:NAME. (default: the preset's)",
    )
    epsilon: list[str] | None = _what(
        "EPSILON", "The epsilon of each user; repeatable. (default: the preset's)"
    )
    delta: str | None = _what(
        "DELTA",
        "The delta of each user. Shuffled bits, linear algorithms, the factorisation and runs with "
        "--visits are calibrated to it; all others report epsilon at DELTA. (default: 1e-6)",
    )
    horizon: str | None = _what(
        "T", "The number of rounds per run, e.g. 1e6. (default: the preset's)", "-T", "--horizon"
    )
    instances: str | None = _what(
        "N", "The number of worlds to draw; each is played once. (default: the preset's)"
    )
    arms: str | None = _what("K", "The number of arms in each world. (default: the preset's)")
    radius: str = _how(
        "WORD",
        "The confidence intervals: exact (proven for the noise), or paper (the paper's formula).",
        default="exact",
    )
    schedule: str | None = _how(
        "WORD",
        "The batch lengths: exact (chosen for the noise), paper (2^b) or released (4^b, the "
        "paper's code). (default: exact with --radius exact, otherwise the preset's)",
    )
    failure_probability: str | None = _how(
        "P",
        "The largest probability that a run drops the best arm, e.g. 1e-3, 5%, or 1/T as in the "
        "theorems. (default: 0.1)",
    )
    confidence: str | None = _how("P", "The former name of --failure-probability.", hidden=True)
    renyi_tail: str | None = _how(
        "WORD",
        "The term h of dist-rdp-se with --radius paper: printed (the paper) or released (its "
        "code). (default: released with --schedule released, otherwise printed)",
    )
    calibration: str | None = _how(
        "WORD",
        "The noise of linear algorithms: exact (the least noise for the guarantee), paper (the "
        "paper's formula; the result states the true guarantee), or pure (Laplace noise, delta 0). "
        "(default: exact)",
    )
    users: str | None = _how(
        "N",
        "The number of users, in a linear world (where each user is a client once) or with "
        "--visits. (default: the preset's, or T/B)",
    )
    alpha: str | None = _how(
        "ALPHA",
        "Phase l of a linear algorithm has 2^(ALPHA l) clients, 0 < ALPHA < 1. (default: 0.8)",
    )
    super_arm: str | None = _what("K", "The size of a super arm. (default: the preset's)")
    release: str | None = _how(
        "WORD",
        "How cucb-dp and cucb-dp2 release sums: tree, doubling or factorisation. (default: tree "
        "with --radius paper, otherwise doubling)",
    )
    visits: str | None = _how(
        "B",
        "Users may return, with up to B visits each; epsilon and delta are for all visits of a "
        "user. (default: every user is new)",
    )
    honest: str | None = _how(
        "SHARE", "The fraction of users who keep their noise secret, e.g. 90%. (default: 100%)"
    )
    dropouts: str | None = _how(
        "SHARE",
        "The fraction of users in a release who may drop out, e.g. 5%; the noise of the others "
        "suffices for the guarantee. (default: 0%)",
    )
    aggregation: str | None = _how(
        "WORD",
        "How messages are summed: ideal (in the clear), or masked (secure aggregation, "
        "about 10 ms per reward). (default: ideal)",
    )
    seed: str = _how(
        "N", "The seed of rewards and noise: equal seeds give equal results.", default="1"
    )


@with_fields
def run(
    preset: str = argument("PRESET", "A world or data set from dpcore bandit list."),
    *,
    options: ExperimentOptions,
    data: list[str] | None = _what(
        "FILE", "The data file that cz/mslr or obd needs; repeatable for cz/mslr."
    ),
    rewards: str | None = _what(
        "FILE",
        "Your own rewards instead of the preset's arms: a CSV file of numbers in [0, 1], one "
        "column per arm, drawn with replacement.",
    ),
    jobs: str = _how(
        "N",
        "The number of processes, or -1 for one per core. It does not affect the results.",
        "-j",
        "--jobs",
        default="1",
    ),
    resume: str | None = _how("FILE", "Store finished runs in this file, and continue from them."),
    output: str | None = _result(
        "DIR",
        "Write rows.json, regret.csv, certificates and (with matplotlib) regret.svg.",
        "-o",
        "--output",
    ),
    as_json: bool = flag(
        "Print one JSON document instead of text.", "--json", rich_help_panel="The result"
    ),
) -> None:
    r"""Run bandit algorithms in simulated worlds: their regret, and the epsilon of each user.

    Example: dpcore bandit run cz/easy --epsilon 0.5 -T 1e5 --instances 3

    Regret is pseudo-regret; means and standard errors are over instances. Noise is simulated from
    --seed; the guarantees hold for the algorithms with secret noise. Exit code: 0 done, 2 usage,
    130 Ctrl-C (--resume keeps finished runs).
    """
    stopped = _NOTHING
    try:
        from bandits.experiments.results import check_results, refuse_inputs
        from bandits.experiments.summary import guarantees_of

        workers = read_jobs(jobs)
        folder, state = read_path("--output", output), read_path("--resume", resume)
        if rewards is not None and data:
            raise InvalidParameter("--rewards", rewards, "replaces --data: give only one")
        option, data = ("--data", data) if rewards is None else ("--rewards", [rewards])
        source = [place for text in data or () if (place := read_path(option, text))]
        for place in [*source, None]:
            refuse_inputs(folder, {option: place, "--resume": state})
        experiment = read_experiment(preset, **asdict(options), rewards=rewards is not None)
        with as_options(data=option):
            worlds = experiment.worlds(source)
            # Every policy is created before any folder or file.
            kinds = len(experiment.algorithms) * len(experiment.epsilons)
            with progress_bar("preparing", kinds) as progress:
                guarantees = guarantees_of(experiment, worlds.arms, progress=progress)
            with made_folder("--output", folder):
                if folder is not None:
                    check_results(folder, experiment)
                cells = _played(experiment, worlds, workers, state)
                stopped = _HALFWAY
                _publish(experiment, worlds, cells, guarantees, folder, as_json=as_json)
    except KeyboardInterrupt:
        kept = "" if resume is None else f"; continue with --resume {resume}"
        say([f"interrupted: {stopped}{kept}"], sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


_SAME: Final = (*(each.name for each in fields(ExperimentOptions)), "data", "jobs", "resume")
_OPTIONS: Final = {
    "max_visits": "--visits",
    "preset": "PRESET",
    "algorithm": "--algorithms",
    "worlds": "--instances",
}
_COUNTS: Final = ("horizon", "instances", "arms", "seed", "users", "super_arm")
_TAIL: Final = "applies only to dist-rdp-se with --radius paper"


def read_path(option: str, text: str | None) -> Path | None:
    r"""Parse a file system path; None stays None.

    >>> read_path("--output", "results").name
    'results'

    Raises :class:`InvalidParameter` if the text contains a NUL or is empty (the current folder).
    """
    if text is None:
        return None
    if not text.strip() or "\0" in text:
        raise InvalidParameter(option, repr(text), "must not be empty or contain a NUL")
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
    confidence: str | None = None,
    **fields: str | None,
) -> Experiment:
    r"""Build the experiment for the given options; the preset or defaults replace missing ones.

    >>> read_experiment("cz/easy", epsilon=["0.5"], horizon="1e5").instances
    20

    ``fields`` are further fields of the experiment, as text; ``confidence`` is the former name of
    ``failure_probability``. If ``rewards`` is true, the arms come from the user's table, and
    everything else from the preset.

    Raises :class:`InvalidParameter`, with the name of the option, if an option is invalid.
    """
    with as_options():
        own = preset_of(preset)
        if rewards and own is not OWN and (own.kind != "arms" or isinstance(own.source, FromFile)):
            reason = f"has its own rewards: use --rewards with {OWN.name} or cz/easy"
            raise InvalidParameter("preset", own.name, reason)
        most = None if visits is None else whole_number("max_visits", visits, at_least=1)
        plan = Deployment(
            honest="1" if honest is None else share("--honest", honest),
            dropouts="0" if dropouts is None else share("--dropouts", dropouts),
            aggregation=cast(AggregationName, aggregation or "ideal"),
        )
        if confidence is not None:
            if fields.get("failure_probability") is not None:
                reason = "is the former name of --failure-probability: give only one"
                raise InvalidParameter("confidence", confidence, reason)
            fields["failure_probability"] = confidence
        given: dict[str, Any] = {name: text for name, text in fields.items() if text is not None}
        given |= {name: whole_number(name, given[name]) for name in _COUNTS if name in given}
        combinatorial, radius = own.kind == "combinatorial", given.get("radius", "exact")
        usual: dict[str, Any] = {
            "delta": own.delta,
            "horizon": own.horizon,
            "instances": own.instances,
            # The paper uses the tree and its bonuses; doubling blocks have a seventh of the regret.
            "release": "doubling" if combinatorial and radius == "exact" else "tree",
        }
        options = usual | given
        risk = options.get("failure_probability", "").strip()
        if risk == "1/T":  # as in the theorems
            options["failure_probability"] = f"1/{options['horizon']}"
        elif risk.endswith("%"):
            options["failure_probability"] = share("--failure-probability", risk)
        experiment = Experiment(
            preset=OWN.name if rewards else own.name,
            algorithms=_playable(own.algorithms, most, plan)
            if algorithms is None
            else tuple(name.strip() for name in algorithms.split(",") if name.strip()),
            epsilons=tuple(epsilon) if epsilon else own.epsilons,
            max_visits=most,
            deployment=plan,
            **options,
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
            ("failure_probability", confident, on),
            ("renyi_tail", experiment.has_renyi_tail, _TAIL),
            ("schedule", experiment.scheduled, on),
        ):
            if argument in given and not used:
                raise InvalidParameter(argument, fields[argument], f"{why}: omit it")
        return experiment


def as_options(**others: str) -> AbstractContextManager[None]:
    r"""In this context, errors name the command's option instead of the function's argument.

    ``others`` maps arguments to the options that set them in this run, if these differ from the
    usual options.

    >>> with as_options():
    ...     raise InvalidParameter("epsilon", "0", "must be > 0")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: --epsilon = 0: must be > 0
    """
    return named(*_SAME, **_OPTIONS, **others)


def _playable(
    algorithms: tuple[str, ...], max_visits: int | None, plan: Deployment
) -> tuple[str, ...]:
    # The supported algorithms, if any; without privacy users may return and drop out.
    able = [names for _, names in limits(max_visits, plan)]
    found = (name for name in algorithms if all(name in (*names, "se") for names in able))
    return tuple(found) or algorithms
