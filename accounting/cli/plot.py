r"""Plots of privacy loss: the curve of a composition, and epsilon against epochs.

Proven upper and lower bounds are drawn together with the values of other tools.

Needs matplotlib, which is an extra: ``pip install 'dpcore[plot]'``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from accounting.composition.training_run import Sampling, TrainingRun
from accounting.guarantees.bound import Bound
from accounting.guarantees.plot_curve import draw_curve
from dpcore.cli.figure_file import curve_picture
from dpcore.cli.terminal import progress_bar
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.rounding import exactly

_COLOURS: Final = ("black", "tab:red", "tab:blue", "tab:green", "tab:purple")
# Rings around the dots mark a curve that coincides with another one.
_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {"linestyle": "--"},
    {"linestyle": "", "marker": "o", "markersize": 8, "fillstyle": "none"},
)

_TENTHS: Final = 10
_WIDEST: Final = "1e-6"


def draw(path: Path, points: Sequence[tuple[float, Bound]], *, title: str) -> None:
    r"""Plot ``points`` (delta, bound on epsilon) with a logarithmic delta axis."""
    with curve_picture("--plot", path, title=title) as axes:
        draw_curve(axes, points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    r"""One line of a plot: epsilon by number of epochs, and the values of other tools.

    ``points``: (epochs, bound on epsilon). ``others``: (epochs, epsilon) for each tool.
    """

    label: str
    points: tuple[tuple[float, Bound], ...]
    others: dict[str, tuple[tuple[float, float], ...]]


def over_epochs(run: TrainingRun, delta: Fraction) -> Training:
    r"""Epsilon after each tenth of a run, and dp-accounting's values for Poisson batches."""
    from accounting.interop.export_pld import accountants_of_dp_accounting

    counts = sorted({max(run.rounds * i // _TENTHS, 1) for i in range(1, _TENTHS + 1)})
    points = []
    with progress_bar("epochs", len(counts)) as advance:
        for count in counts:
            shorter = run.first(count)
            found = shorter.bounded(shorter.composition().epsilon(delta, _WIDEST))
            points.append((float(shorter.epochs), found))
            advance(len(points))
    others: dict[str, tuple[tuple[float, float], ...]] = {}
    sampled = run.sampling is Sampling.POISSON and run.relation is not Relation.REPLACE
    if sampled and run.group == 1 and find_spec("dp_accounting"):
        curves = accountants_of_dp_accounting(run.noise_multiplier, run.rate, counts, delta)
        epochs = [x for x, _ in points]
        others = {tool: tuple(zip(epochs, found, strict=True)) for tool, found in curves.items()}
    label = f"noise multiplier {exactly(run.noise_multiplier)}"
    return Training(label=label, points=tuple(points), others=others)


def draw_epochs(path: Path, lines: Sequence[Training], *, title: str) -> None:
    r"""Plot epsilon against epochs: both proven bounds, and other tools as dashed lines."""
    if not any(bound.upper < math.inf for line in lines for _, bound in line.points):
        reason = "every epsilon is infinite: there is nothing to plot"
        raise InvalidParameter("--plot", str(path), reason)
    labels = {"x_label": "epochs", "y_label": "epsilon"}
    with curve_picture("--plot", path, title=title, y_scale="linear", **labels) as axes:
        for line, colour in zip(lines, cycle(_COLOURS), strict=False):
            finite = [(x, bound) for x, bound in line.points if bound.upper < math.inf]
            epochs = [x for x, _ in finite]
            above = [bound.upper_float for _, bound in finite]
            known = [(x, b.lower_float) for x, b in finite if b.lower_float is not None]
            ends = "both proven bounds" if len(known) == len(finite) else "proven upper bound"
            marks: dict[str, Any] = {"color": colour, "linewidth": 1.0}
            axes.plot(
                epochs, above, marker="o", markersize=2.5, label=f"{line.label}: {ends}", **marks
            )
            if known:
                axes.plot(*zip(*known, strict=True), marker="o", markersize=2.5, **marks)
            for (tool, found), style in zip(line.others.items(), _STYLES, strict=False):
                title = f"{line.label}: {tool}"
                axes.plot(*zip(*found, strict=True), label=title, **{**marks, **style})
