r"""``dpcore bandit plot``; ``bandits.cli`` registers :func:`plot`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpcore.command.terminal import say

__all__ = ["plot"]


def plot(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A folder of dpcore bandit run --output, or its regret.csv."
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="An .svg, .png or .pdf file.")
    ],
) -> None:
    r"""Regret per round against the round, with bands of one standard error.

    Example: dpcore bandit plot results --output regret.svg

    A panel for each epsilon. Needs matplotlib, the extra plot. Exit code: 0 done, 2 usage.
    """
    from bandits.experiments.ownership import TABLE, require_whole
    from bandits.experiments.regret_csv import read_lines
    from bandits.experiments.results import draw_results, without_regret
    from bandits.plots.plots import check_picture

    check_picture("--output", output)
    if source.is_dir():
        require_whole("path", source)
        source /= TABLE
    lines = read_lines(source)
    draw_results(lines, output)
    for warning in without_regret(lines):
        say([f"warning: {warning}"], sys.stderr)
    say([str(output)])
