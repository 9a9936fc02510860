r"""The folder that ``dpcore bandit run --output`` fills, and the pictures drawn from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bandits.experiment import Cell, Experiment, play_task
from bandits.presets import Worlds
from bandits.registry import read_algorithm
from bandits.tidy import Line, read_lines, write_csv
from dpcore.errors import InvalidParameter
from dpcore.output_file import write_whole

if TYPE_CHECKING:
    from bandits.plots import Curve

__all__ = ["certificates", "draw_results", "write_results"]

_ROWS: Final = "rows.json"
_TABLE: Final = "regret.csv"
_PICTURE: Final = "regret.svg"
_SEEDED: Final = (
    "noise comes from the operating system; in the simulated run of this certificate it came from "
    "a seed, and protects nobody"
)


def write_results(
    folder: Path, experiment: Experiment, worlds: Worlds, cells: Sequence[Cell], rows: str
) -> Iterator[str]:
    r"""Write the rows, the tidy table, certificates and, where matplotlib is installed, the figure.

    Yields what could not be done, in words. Raises :class:`InvalidParameter` for a file that cannot
    be written.
    """
    write_whole("--output", folder / _ROWS, rows)
    write_csv(folder / _TABLE, experiment, cells)
    for name, text in certificates(experiment, worlds):
        write_whole("--output", folder / name, text)
    if find_spec("matplotlib") is None:
        yield f"no {_PICTURE}: needs matplotlib: pip install 'dpcore[plot]'"
        return
    lines = read_lines(folder / _TABLE)
    if any(max(line.mean) > 0 for line in lines):
        draw_results(lines, folder / _PICTURE)
    else:
        yield f"no {_PICTURE}: there is no regret to show on a logarithmic axis"


def certificates(experiment: Experiment, worlds: Worlds) -> Iterator[tuple[str, str]]:
    r"""File names and certificates: for each algorithm and epsilon the run of instance 0.

    All its instances promise the same, as their arms and horizon are the same. An algorithm that
    protects nobody has none.
    """
    from bandits.certificate import certificate_of

    for task in experiment.tasks():
        if task.instance:
            continue
        run = play_task(experiment, worlds.environments[0], task)
        if run.guarantee is None or not run.guarantee.parts:
            continue
        found = certificate_of(run, deltas=[experiment.delta])
        simulated = replace(found, assumptions=(*found.assumptions, _SEEDED))
        name = f"certificate-{task.algorithm}-{task.epsilon}.json"
        yield name.replace(":", "_").replace("/", "_"), simulated.text()


def draw_results(lines: Sequence[Line], path: Path) -> None:
    r"""Reg(t)/t of every algorithm, a panel for each epsilon.

    Raises :class:`InvalidParameter` where no picture can be written.
    """
    from bandits.plots import Panel, draw_panels

    groups: dict[tuple[str, str], list[Curve]] = {}
    for line in lines:
        groups.setdefault((line.preset, line.epsilon), []).append(_curve(line))
    panels = [
        Panel(title=f"{preset}, epsilon = {_decimal(epsilon)}", curves=curves)
        for (preset, epsilon), curves in groups.items()
    ]
    draw_panels(path, panels, title="")


def _curve(line: Line) -> Curve:
    from bandits.plots import Curve

    # A logarithmic axis has no place for no regret: such points are left out.
    kept = [i for i, mean in enumerate(line.mean) if mean > 0] or [len(line.t) - 1]
    return Curve(
        label=label(line.algorithm),
        x=tuple(float(line.t[i]) for i in kept),
        y=tuple(line.mean[i] for i in kept),
        error=tuple(line.error[i] for i in kept),
    )


def label(algorithm: str) -> str:
    r"""An algorithm's name in a picture, the parameter with it even where it is the default.

    >>> label("dist-rdp-se"), label("dist-rdp-se:s=100"), label("se")
    ('dist-rdp-se s=10', 'dist-rdp-se s=100', 'se')
    """
    found = read_algorithm(algorithm)
    value = found.entry.default if found.value is None else found.value
    if found.entry.parameter is None or value is None:
        return found.entry.name
    return f"{found.entry.name} {found.entry.parameter}={value}"


def _decimal(epsilon: str) -> str:
    try:
        return f"{float(Fraction(epsilon)):g}"
    except (ValueError, ZeroDivisionError):
        raise InvalidParameter("path", epsilon, "is no epsilon") from None
