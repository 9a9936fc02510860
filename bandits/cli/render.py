r"""Format the tables of ``dpcore bandit`` as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from bandits.experiments.experiment import Experiment
from bandits.experiments.summary import Ratio, Row, for_each_user, lower_bounds, remarks
from bandits.policies.registry import Entry
from bandits.worlds import Preset
from dpcore.cli.terminal import aligned
from dpcore.numbers.rounding import up

_DIGITS: Final = 12


def list_lines(presets: Sequence[Preset], algorithms: Sequence[Entry]) -> list[str]:
    r"""Format the list of presets and algorithms, with one sentence each."""
    worlds = aligned([(f"  {preset.name}", preset.sentence) for preset in presets])
    names = aligned([(f"  {_written(entry)}", entry.sentence) for entry in algorithms])
    return ["Presets", *worlds, "", "Algorithms", *names]


def _written(entry: Entry) -> str:
    if entry.parameter is None:
        return entry.name
    return f"{entry.name}[:{entry.parameter}={entry.default or entry.parameter.upper()}]"


def run_lines(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    r"""Format the results of an experiment, one line per row."""
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
            _epsilon(row.epsilon),
            _figure(row.regret_per_round),
            _figure(row.standard_error),
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
        "regret/T is the mean over instances +- its standard error; bits is the most of any user.",
        f"Guarantees are{whom}; noise of this run was simulated.",
        *remarks(rows),
        *(
            f"{bound['theorem']} at epsilon {_epsilon(bound['epsilon'])}: in the limit at least "
            f"{_figure(bound['regret_per_round'])} for any algorithm ({bound['of']})."
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


def compare_lines(
    ratios: Sequence[Ratio], left: Mapping[str, Sequence[tuple[str, float]]]
) -> list[str]:
    r"""Format ratios of regrets, one per line; ``left`` are the unmatched rows of A and B."""
    table = [("algorithm", "epsilon", "regret/T of A", "of B", "A/B", "+-")]
    table += [
        (
            ratio.algorithm,
            _epsilon(ratio.epsilon),
            _figure(ratio.first),
            _figure(ratio.second),
            _figure(ratio.ratio, 3),
            _figure(ratio.standard_error, 2),
        )
        for ratio in ratios
    ]
    paired = sum(ratio.paired for ratio in ratios)
    how = f"Standard errors: {paired} of {len(ratios)} rows paired by instance."
    only = [
        f"Only in {name}: {algorithm} at epsilon {_epsilon(epsilon)}."
        for name, rows in left.items()
        for algorithm, epsilon in rows
    ]
    return [*aligned(table, right=range(1, 6)), "", how, *only]


def _epsilon(value: float) -> str:
    return up(Fraction(repr(value)), _DIGITS)


def _figure(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
