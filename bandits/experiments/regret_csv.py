r"""Regret as a tidy table: CSV, a row for each run and checkpoint, and curves read back from it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias

from bandits.experiments.averages import mean_and_error
from bandits.experiments.experiment import Cell, Experiment
from dpcore.command.input_file import csv_rows
from dpcore.command.output_file import write_whole
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import write_rational

__all__ = ["COLUMNS", "Line", "lines_of", "read_lines", "write_csv"]

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
r"""``regret`` is Reg(t) of one run; ``epsilon`` and ``delta`` are exact, as they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    r"""Reg(t)/t of one algorithm at one epsilon: means and standard errors over instances.

    With one instance the error is 0.
    """

    preset: str
    algorithm: str
    epsilon: str
    t: tuple[int, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...]


def write_csv(path: Path, experiment: Experiment, cells: Iterable[Cell]) -> None:
    r"""Every cell at every checkpoint; the file is there whole or not at all.

    Raises :class:`InvalidParameter` where it cannot be written.
    """
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


def lines_of(experiment: Experiment, cells: Iterable[Cell]) -> tuple[Line, ...]:
    r"""The curves of an experiment, as :func:`read_lines` reads them from its table."""
    curves: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for cell in cells:
        curves.setdefault((cell.algorithm, cell.epsilon), []).append(cell.regret)
    return tuple(
        _averaged((experiment.preset, *kind), experiment.checkpoints, regrets)
        for kind, regrets in curves.items()
    )


def read_lines(path: Path) -> tuple[Line, ...]:
    r"""The curves of a file that :func:`write_csv` wrote, in its order.

    Raises :class:`InvalidParameter` for another kind of file, naming the line that cannot be read,
    for one that was cut, and where runs that no mean is over would be one curve: of two settings,
    an instance twice, instances of unequal rounds.
    """
    curves: dict[_Key, _Curve] = {}
    for number, point in _points(path):
        curve = curves.setdefault(point.key, _Curve(setting=point.setting, number=number))
        if point.setting != curve.setting:
            reason = (
                f"line {number} is of another setting than line {curve.number}: plot them apart"
            )
            raise InvalidParameter("path", str(path), reason)
        run = curve.runs.setdefault(point.instance, {})
        if point.t in run:
            reason = f"line {number} has instance {point.instance} at t = {point.t} a second time"
            raise InvalidParameter("path", str(path), reason)
        run[point.t] = point.regret
    if not curves:
        raise InvalidParameter("path", str(path), "holds no runs")
    return tuple(_line(path, key, curve) for key, curve in curves.items())


_Key: TypeAlias = tuple[str, str, str]
_KEY: Final = ("preset", "algorithm", "epsilon")
_SETTING: Final = ("delta", "radius", "schedule", "horizon", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    key: _Key
    setting: tuple[str, ...]
    instance: int
    t: int
    regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    # The runs of a curve by instance, and the line that it began with.
    setting: tuple[str, ...]
    number: int
    runs: dict[int, dict[int, float]] = field(default_factory=dict)


def _line(path: Path, key: _Key, curve: _Curve) -> Line:
    _, algorithm, epsilon = key
    rounds = sorted(next(iter(curve.runs.values())))
    for instance, run in curve.runs.items():
        if sorted(run) != rounds or str(rounds[-1]) != curve.setting[_SETTING.index("horizon")]:
            reason = f"was cut: {algorithm} at epsilon {epsilon} misses rounds of a run"
            raise InvalidParameter("path", str(path), f"{reason} (instance {instance})")
    return _averaged(key, rounds, [[run[t] for t in rounds] for run in curve.runs.values()])


def _averaged(key: _Key, rounds: Sequence[int], regrets: Sequence[Sequence[float]]) -> Line:
    preset, algorithm, epsilon = key
    both = [mean_and_error([run[i] / t for run in regrets]) for i, t in enumerate(rounds)]
    return Line(
        preset=preset,
        algorithm=algorithm,
        epsilon=epsilon,
        t=tuple(rounds),
        mean=tuple(mean for mean, _ in both),
        error=tuple(error or 0.0 for _, error in both),
    )


def _points(path: Path) -> Iterator[tuple[int, _Point]]:
    rows = csv_rows("path", path, whole=True)
    _, header = next(rows, (0, []))
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        reason = f"is no regret.csv of dpcore bandit run: it has no column {missing[0]}"
        raise InvalidParameter("path", str(path), reason)
    for line, row in rows:
        try:
            yield line, _point(dict(zip(header, row, strict=True)))
        except ValueError:
            reason = f"line {line} holds no round and regret"
            raise InvalidParameter("path", str(path), reason) from None


def _point(row: dict[str, str]) -> _Point:
    preset, algorithm, epsilon = (row[name] for name in _KEY)
    point = _Point(
        key=(preset, algorithm, epsilon),
        setting=tuple(row[name] for name in _SETTING),
        instance=int(row["instance"]),
        t=int(row["t"]),
        regret=float(row["regret"]),
    )
    if point.t < 1 or not math.isfinite(point.regret):
        raise ValueError(point)
    return point
