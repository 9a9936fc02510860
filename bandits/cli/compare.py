r"""``dpcore bandit compare``; ``bandits.cli`` registers :func:`compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dpcore.command.options import AsJson, argument
from dpcore.command.terminal import say, show

__all__ = ["compare"]

_SCHEMA: Final = "dpcore-bandit-compare/1"


def compare(
    first: Path = argument("A", "A file or folder that dpcore bandit run wrote."),
    second: Path = argument("B", "Another one, of the same worlds."),
    *,
    as_json: AsJson = False,
) -> None:
    r"""Compare two results: regret of A divided by regret of B, with standard errors.

    Example: dpcore bandit compare paper.json exact.json

    Rows are matched by algorithm and epsilon; rows without a partner are listed. If both results
    have the same number of instances, they are compared world by world.
    Exit code: 0 done, 2 usage.
    """
    from bandits.cli.render import compare_lines
    from bandits.experiments.comparison import alone, read_document
    from bandits.experiments.comparison import compare as ratios_of

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
    rows = [ratio.to_json() for ratio in ratios]
    show({"schema": _SCHEMA, "rows": rows, "unmatched": unmatched})
