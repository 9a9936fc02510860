r"""``dpcore budget continual``: the noise and the error of running sums at one guarantee."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from accounting.cli.options import exact, show
from accounting.cli.releases import SCHEMA
from dpcore.command.options import AsJson, named
from dpcore.command.patience import patiently
from dpcore.command.progress import progress_bar
from dpcore.command.table import aligned
from dpcore.mechanism import Relation, Scope
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import rational, whole_number
from dpcore.numbers.rounding import up

if TYPE_CHECKING:
    from accounting.budget.continual import CalibratedSum

__all__ = ["continual"]

_COLUMNS = ("mechanism", "noise", "epsilon", "delta", "error", "largest", "items behind")


@patiently
def continual(
    *,
    horizon: Annotated[
        str, typer.Option(metavar="T", help="How many items the stream has at most, up to 16384.")
    ],
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILON", help="The epsilon of all released sums together.")
    ],
    delta: Annotated[
        str, typer.Option(metavar="DELTA", help="The delta of the guarantee; 0 for pure DP.")
    ] = "0",
    low: Annotated[str, typer.Option(metavar="X", help="The smallest item.")] = "0",
    high: Annotated[str, typer.Option(metavar="X", help="The largest item.")] = "1",
    unit: Annotated[
        str, typer.Option(metavar="X", help="What items are multiples of, e.g. 1/16.")
    ] = "1",
    relation: Annotated[
        Relation,
        typer.Option(help="Neighbours: one item replaced, or one added or removed in its place."),
    ] = Relation.REPLACE,
    as_json: AsJson = False,
) -> None:
    r"""Compare running sums of a stream at one guarantee: the noise and the error of each.

    Example: dpcore budget continual --horizon 1024 --epsilon 1 --delta 1e-6
    """
    from accounting.budget.continual import MECHANISMS, MOST_COMPARED, compare_sums

    items = whole_number("--horizon", horizon, at_least=1, at_most=MOST_COMPARED)
    target, most = rational("--epsilon", epsilon), rational("--delta", delta)
    options = {name: f"--{name}" for name in ("epsilon", "delta", "low", "high", "unit")}
    found: list[CalibratedSum] = []
    with progress_bar("mechanisms", len(MECHANISMS)) as advance, named(**options):
        for row in compare_sums(
            horizon=items,
            epsilon=target,
            delta=most,
            low=rational("--low", low),
            high=rational("--high", high),
            unit=rational("--unit", unit),
            scope=Scope(relation=relation),
        ):
            found.append(row)
            advance(len(found))
    if as_json:
        asked = {"horizon": items, "epsilon": exact(target), "delta": exact(most)}
        neighbours = {"unit": "contribution", "relation": relation.value}
        head = {"schema": SCHEMA, "target": asked, "scope": neighbours}
        rows = [{**row.to_json(), "delta": exact(row.calibration.delta)} for row in found]
        show({**head, "continual": rows})
        return
    lines = aligned([_COLUMNS, *map(_cells, found)], right=range(2, len(_COLUMNS)))
    show(
        [
            *lines,
            "",
            "error: root mean squared error of the sums after each item; largest: of the worst",
            "items behind: the most items that have come and are not in the sum, nor in its error",
        ]
    )


def _cells(row: CalibratedSum) -> tuple[str, ...]:
    return (
        row.setting.name,
        row.noise,
        up(row.calibration.epsilon_at_delta().upper),
        up(row.calibration.delta),
        _root(row.mean.upper),
        _root(row.largest.upper),
        str(row.behind),
    )


def _root(squared: End) -> str:
    return up(math.nextafter(math.sqrt(math.nextafter(float(squared), math.inf)), math.inf))
