r"""The ``dpcore bandit`` commands; the entry point is ``commands``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bandits.cli.run import figure, run, short_epsilon
from dpcore.cli.figure_file import check_picture
from dpcore.cli.options import AsJson, argument, command_group, named, option
from dpcore.cli.terminal import aligned, say, show

if TYPE_CHECKING:
    from bandits.experiments.summary import Ratio
    from bandits.policies.registry import Entry
    from bandits.worlds import Preset

__all__ = ["commands", "compare", "plot"]

_LIST: Final = "dpcore-bandit-list/1"
_COMPARE: Final = "dpcore-bandit-compare/1"
_OF_PRESETS: Final = ["name", "sentence", "algorithms", "epsilons", "horizon", "instances", "arms"]
_OF_ALGORITHMS: Final = ["name", "sentence", "parameter", "default"]

commands = command_group(
    "bandit",
    help=(
        "Run private bandit algorithms and report their regret and epsilon.\n\n"
        "Start with [bold]dpcore bandit run cz/easy --epsilon 0.5 -T 1e5 --instances 3[/bold]."
    ),
    no_args_is_help=True,
)


@commands.command("list")
def list_command(as_json: AsJson = False) -> None:
    r"""List the presets (simulated worlds and data sets) and the algorithms.

    Example: dpcore bandit list
    """
    from bandits.policies.registry import ALGORITHMS
    from bandits.worlds import PRESETS

    if not as_json:
        say(list_lines(PRESETS, ALGORITHMS))
        return
    presets = [{key: getattr(preset, key) for key in _OF_PRESETS} for preset in PRESETS]
    algorithms = [{key: getattr(entry, key) for key in _OF_ALGORITHMS} for entry in ALGORITHMS]
    show({"schema": _LIST, "presets": presets, "algorithms": algorithms})


commands.command()(run)


@commands.command()
def compare(
    first: Path = argument(
        "A", "A folder that dpcore bandit run --output wrote, its rows.json, or --json output."
    ),
    second: Path = argument("B", "A second result, for the same worlds."),
    *,
    as_json: AsJson = False,
) -> None:
    r"""Compare two results: regret of A divided by regret of B, with standard errors.

    Example: dpcore bandit compare paper.json exact.json

    Rows are matched by algorithm and epsilon; unmatched rows are listed. If both results
    have the same number of instances, they are compared world by world.
    Exit code: 0 done, 2 usage.
    """
    from bandits.experiments.summary import alone, read_document
    from bandits.experiments.summary import compare as ratios_of

    one = read_document(first, argument="A")
    other = read_document(second, argument="B")
    ratios = ratios_of(one, other)
    left = {"A": alone(one, other), "B": alone(other, one)}
    if not as_json:
        say(compare_lines(ratios, left))
        return
    unmatched = [
        {"in": name, "algorithm": algorithm, "epsilon": epsilon}
        for name, rows in left.items()
        for algorithm, epsilon in rows
    ]
    rows = [asdict(ratio) for ratio in ratios]
    show({"schema": _COMPARE, "rows": rows, "unmatched": unmatched})


@commands.command()
def plot(
    source: Path = argument(
        "SOURCE", "A folder that dpcore bandit run --output wrote, or its regret.csv."
    ),
    *,
    output: Path = option(
        "FILE", "The plot file to write: .svg, .png or .pdf.", "-o", "--output", default=...
    ),
) -> None:
    r"""Plot regret per round over time, with bands of one standard error.

    Example: dpcore bandit plot results --output regret.svg

    The plot has one panel per epsilon and, for a folder, the lower bound of a hard instance, which
    regret.csv does not contain. It needs matplotlib (dpcore\[plot]). Exit code: 0 done, 2 usage.
    """
    from bandits.experiments.results import TABLE, bounds_of, draw_results, read_lines
    from bandits.experiments.summary import read_document

    check_picture("--output", output)
    with named(path="SOURCE"):
        document = read_document(source) if source.is_dir() else {}
        lines = read_lines(source / TABLE if source.is_dir() else source)
        bounds = bounds_of(document, lines)
    for warning in draw_results(lines, output, bounds):
        say([f"warning: {warning}"], sys.stderr)
    say([str(output)])


def list_lines(presets: Sequence[Preset], algorithms: Sequence[Entry]) -> list[str]:
    r"""Format the list of presets and algorithms, with one sentence each."""
    worlds = aligned([(f"  {preset.name}", preset.sentence) for preset in presets])
    names = aligned([(f"  {_written(entry)}", entry.sentence) for entry in algorithms])
    return ["Presets", *worlds, "", "Algorithms", *names]


def _written(entry: Entry) -> str:
    if entry.parameter is None:
        return entry.name
    return f"{entry.name}[:{entry.parameter}={entry.default or entry.parameter.upper()}]"


def compare_lines(
    ratios: Sequence[Ratio], left: Mapping[str, Sequence[tuple[str, float]]]
) -> list[str]:
    r"""Format ratios of regrets, one per line, then the unmatched rows of the results A and B."""
    table = [("algorithm", "epsilon", "regret/T of A", "of B", "A/B", "+-")]
    table += [
        (
            ratio.algorithm,
            short_epsilon(ratio.epsilon),
            figure(ratio.first),
            figure(ratio.second),
            figure(ratio.ratio, 3),
            figure(ratio.standard_error, 2),
        )
        for ratio in ratios
    ]
    paired = sum(ratio.paired for ratio in ratios)
    how = f"Standard errors: {paired} of {len(ratios)} rows paired by instance."
    only = [
        f"Only in {name}: {algorithm} at epsilon {short_epsilon(epsilon)}."
        for name, rows in left.items()
        for algorithm, epsilon in rows
    ]
    return [*aligned(table, right=range(1, 6)), "", how, *only]
