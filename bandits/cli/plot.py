r"""``dpcore bandit plot``; ``bandits.cli`` registers :func:`plot`."""

from __future__ import annotations

import sys
from pathlib import Path

from dpcore.command.options import argument, named, option
from dpcore.command.terminal import say

__all__ = ["plot"]


def plot(
    source: Path = argument(
        "SOURCE", "A folder that dpcore bandit run --output wrote, or its regret.csv."
    ),
    *,
    output: Path = option(
        "FILE", "The picture to write: .svg, .png or .pdf.", "-o", "--output", default=...
    ),
) -> None:
    r"""Draw regret per round over time, with bands of one standard error.

    Example: dpcore bandit plot results --output regret.svg

    One panel for each epsilon; of a folder also the lower bound of a hard instance, which
    regret.csv alone does not tell. Needs matplotlib (dpcore\[plot]).
    Exit code: 0 done, 2 usage.
    """
    from bandits.experiments.comparison import read_document
    from bandits.experiments.curves import bounds_of, draw_results, read_lines, without_regret
    from bandits.experiments.results import TABLE
    from dpcore.command.picture import check_picture

    check_picture("--output", output)
    with named(path="SOURCE"):
        document = read_document(source) if source.is_dir() else {}
        lines = read_lines(source / TABLE if source.is_dir() else source)
        bounds = bounds_of(document, lines)
    draw_results(lines, output, bounds)
    for warning in without_regret(lines):
        say([f"warning: {warning}"], sys.stderr)
    say([str(output)])
