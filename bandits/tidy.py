r"""Regret as a tidy table: CSV, a row for each run and checkpoint, and curves read back from it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from bandits.experiment import Cell, Experiment
from bandits.summary import mean_and_error
from dpcore.errors import InvalidParameter
from dpcore.output_file import write_whole
from dpcore.parameter import write_rational

__all__ = ["COLUMNS", "Line", "read_lines", "write_csv"]

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

    The error of one instance is 0: there is none to show.
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


def read_lines(path: Path) -> tuple[Line, ...]:
    r"""The curves of a file that :func:`write_csv` wrote, in its order.

    Raises :class:`InvalidParameter` for a file that is none, with the line that is not understood.
    """
    found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for key, t, regret in _points(path):
        found.setdefault(key, {}).setdefault(t, []).append(regret / t)
    if not found:
        raise InvalidParameter("path", str(path), "holds no runs")
    return tuple(_line(key, points) for key, points in found.items())


def _line(key: tuple[str, str, str], points: dict[int, list[float]]) -> Line:
    preset, algorithm, epsilon = key
    rounds = sorted(points)
    both = [mean_and_error(points[t]) for t in rounds]
    return Line(
        preset=preset,
        algorithm=algorithm,
        epsilon=epsilon,
        t=tuple(rounds),
        mean=tuple(mean for mean, _ in both),
        error=tuple(error or 0.0 for _, error in both),
    )


def _points(path: Path) -> Iterator[tuple[tuple[str, str, str], int, float]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                reason = f"is no regret.csv of dpcore bandit run: it has no column {missing[0]}"
                raise InvalidParameter("path", str(path), reason)
            for row in rows:
                try:
                    t, regret = int(row["t"]), float(row["regret"])
                    if t < 1 or not math.isfinite(regret):
                        raise ValueError(t)
                except (TypeError, ValueError):
                    reason = f"line {rows.line_num} holds no round and regret"
                    raise InvalidParameter("path", str(path), reason) from None
                yield (row["preset"], row["algorithm"], row["epsilon"]), t, regret
    except OSError as error:
        raise InvalidParameter("path", str(path), error.strerror or str(error)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidParameter("path", str(path), f"is no CSV text ({error})") from None
