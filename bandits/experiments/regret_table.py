r"""Regret curves: their tidy table, curves parsed from it, and their plot.

The table is a CSV file with a row for each run and checkpoint.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.summary import mean_and_error
from bandits.policies.registry import read_algorithm
from dpcore.cli.files import csv_rows, write_whole
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import up

if TYPE_CHECKING:
    from bandits.regret_plots import Curve


_DIGITS: Final = 12

COLUMNS: Final = (
    "preset",
    "algorithm",
    "epsilon",
    "delta",
    "radius",
    "schedule",
    "horizon",
    "seed",
    "instance",
    "bits_per_user",
    "t",
    "regret",
)
r"""The columns: ``regret`` is Reg(t) of one run; ``epsilon`` and ``delta`` are exact text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    r"""The means and standard errors of Reg(t)/t over instances, for one algorithm and epsilon."""

    preset: str
    algorithm: str
    epsilon: str
    t: tuple[int, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...]


def write_csv(path: Path, experiment: Experiment, cells: Iterable[Cell]) -> None:
    r"""Write all cells at all checkpoints; the file is written atomically."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    delta = write_rational(Fraction(experiment.delta))
    for cell in cells:
        head = (
            experiment.preset,
            cell.algorithm,
            cell.epsilon,
            delta,
            experiment.radius,
            experiment.schedule,
            experiment.horizon,
            experiment.seed,
            cell.instance,
            cell.bits_per_user,
        )
        for t, regret in zip(experiment.checkpoints, cell.regret, strict=True):
            rows.writerow((*head, t, repr(regret)))
    write_whole("--output", path, text.getvalue())


def read_lines(path: Path) -> tuple[PlotLine, ...]:
    r"""Parse the curves of a file of :func:`write_csv`, in the order of the file.

    Raises :class:`InvalidParameter` for another kind of file (the error has the invalid line), for
    a truncated file, and for runs that cannot be averaged because of different settings, a repeated
    instance or different rounds.
    """

    def refused(reason: str) -> InvalidParameter:
        return InvalidParameter("path", str(path), reason)

    # For each curve: the number of its first line with the setting, and its runs by instance.
    begun: dict[_Key, tuple[int, tuple[str, ...]]] = {}
    curves: dict[_Key, dict[int, dict[int, float]]] = {}
    for number, row in _rows(path):
        key = row["preset"], row["algorithm"], row["epsilon"]
        setting = tuple(row[name] for name in _SETTING)
        first, own = begun.setdefault(key, (number, setting))
        if setting != own:
            raise refused(
                f"line {number} differs from line {first} in its setting: plot them separately"
            )
        try:
            instance, t, regret = int(row["instance"]), int(row["t"]), float(row["regret"])
            if t < 1 or not math.isfinite(regret):
                raise ValueError(regret)
        except ValueError:
            raise refused(f"line {number} has no valid round and regret") from None
        run = curves.setdefault(key, {}).setdefault(instance, {})
        if t in run:
            raise refused(f"line {number} repeats instance {instance} at t = {t}")
        run[t] = regret
    if not curves:
        raise refused("contains no runs")
    return tuple(_line(path, key, runs, begun[key][1]) for key, runs in curves.items())


_Key: TypeAlias = tuple[str, str, str]
_SETTING: Final = ("delta", "radius", "schedule", "horizon", "seed")


def _line(
    path: Path, key: _Key, runs: dict[int, dict[int, float]], setting: tuple[str, ...]
) -> PlotLine:
    preset, algorithm, epsilon = key
    rounds = sorted(next(iter(runs.values())))
    for instance, run in runs.items():
        if sorted(run) != rounds or str(rounds[-1]) != setting[_SETTING.index("horizon")]:
            reason = f"is truncated: {algorithm} at epsilon {epsilon} lacks rounds of a run"
            raise InvalidParameter("path", str(path), f"{reason} (instance {instance})")
    both = [mean_and_error([run[t] / t for run in runs.values()]) for t in rounds]
    return PlotLine(
        preset=preset,
        algorithm=algorithm,
        epsilon=epsilon,
        t=tuple(rounds),
        mean=tuple(mean for mean, _ in both),
        error=tuple(error or 0.0 for _, error in both),
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    rows = csv_rows("path", path, whole=True)
    _, header = next(rows, (0, []))
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        reason = f"is not a regret.csv of dpcore bandit run: it has no column {missing[0]}"
        raise InvalidParameter("path", str(path), reason)
    for line, row in rows:
        if len(row) != len(header):
            raise InvalidParameter("path", str(path), f"line {line} has no valid round and regret")
        yield line, dict(zip(header, row, strict=True))


def title_of(preset: str, epsilon: str) -> str:
    r"""The title of a panel, which also identifies the plot."""
    return f"{preset}, epsilon = {epsilon}"


def draw_results(
    lines: Sequence[PlotLine], path: Path, bounds: Mapping[str, Curve] = MappingProxyType({})
) -> list[str]:
    r"""Plot Reg(t)/t of all algorithms, one panel per epsilon.

    Curves without regret are omitted; returns a message for each of them.
    """
    from bandits.regret_plots import Panel, draw_panels

    groups: dict[tuple[str, str], list[Curve]] = {}
    omitted = []
    for line in lines:
        if max(line.mean) > 0:
            groups.setdefault((line.preset, line.epsilon), []).append(_curve(line))
        else:
            omitted.append(
                f"{line.algorithm} at epsilon {line.epsilon} is omitted from the plot: it has "
                "no positive regret for the logarithmic axis"
            )
    if not groups:
        raise InvalidParameter("path", str(path), "has no positive regret for the logarithmic axis")
    for (_, epsilon), curves in groups.items():
        if epsilon in bounds:
            curves.append(bounds[epsilon])
    panels = [
        Panel(title=title_of(preset, _decimal(epsilon)), curves=curves)
        for (preset, epsilon), curves in groups.items()
    ]
    draw_panels(path, panels, title="")
    return omitted


def bounds_of(document: Mapping[str, Any], lines: Sequence[PlotLine]) -> dict[str, Curve]:
    r"""The curves of the lower bound c ln(t)/t of a hard instance, by epsilon."""
    from bandits.regret_plots import Curve

    at = tuple(float(t) for t in lines[0].t if t > 1)
    try:
        stated, found = [*document.get("lower_bounds", ())], {}
        for bound, epsilon in zip(stated, document["epsilons"] if stated else (), strict=True):
            horizon = int(document["horizon"])
            c = float(bound["regret_per_round"]) * horizon / math.log(horizon)
            if not 0 < c < math.inf:
                raise ValueError(f"a lower bound of {c}")
            y = tuple(c * math.log(t) / t for t in at)
            label = f"{bound['theorem']}, T to infinity"
            found[str(epsilon)] = Curve(label=label, x=at, y=y, error=(0.0,) * len(at))
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as wrong:
        reason = f"contains invalid data ({wrong})"
        raise InvalidParameter("path", "rows.json", reason) from None
    return found


def _curve(line: PlotLine) -> Curve:
    from bandits.regret_plots import Curve

    # Points without regret are omitted, because the axis is logarithmic.
    kept = [i for i, mean in enumerate(line.mean) if mean > 0]
    return Curve(
        label=label(line.algorithm),
        x=tuple(float(line.t[i]) for i in kept),
        y=tuple(line.mean[i] for i in kept),
        error=tuple(line.error[i] for i in kept),
    )


def label(algorithm: str) -> str:
    r"""The name of an algorithm in a plot, always with its parameter."""
    found = read_algorithm(algorithm)
    value = found.entry.default if found.value is None else found.value
    if found.entry.parameter is None or value is None:
        return found.entry.name
    return f"{found.entry.name} {found.entry.parameter}={value}"


def _decimal(epsilon: str) -> str:
    try:
        return up(Fraction(epsilon), _DIGITS)
    except (ValueError, ZeroDivisionError):
        raise InvalidParameter("path", epsilon, "is not a valid epsilon") from None
