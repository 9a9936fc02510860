r"""The folder that ``dpcore bandit run --output`` fills, and the pictures drawn from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from accounting.errors import NotDerived
from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.ownership import (
    PICTURE,
    ROWS,
    TABLE,
    certificate_name,
    refuse_foreign,
    remove_earlier,
    title_of,
)
from bandits.experiments.playing import play_task
from bandits.experiments.regret_csv import Line, lines_of, write_csv
from bandits.experiments.summary import write_json
from bandits.play import Run
from bandits.policies.registry import read_algorithm
from bandits.worlds import Worlds
from dpcore.command.output_file import check_writable, write_whole
from dpcore.command.picture import NEEDED
from dpcore.errors import InvalidParameter
from dpcore.numbers.rounding import up

if TYPE_CHECKING:
    from bandits.plots.plots import Curve

__all__ = ["bounds_of", "certificates", "check_results", "draw_results", "without_regret"]
__all__ += ["write_results"]

_DIGITS: Final = 12


def check_results(folder: Path, experiment: Experiment) -> None:
    r"""Refuse, before a run is drawn, a folder where a file of this experiment cannot be written.

    A place where somebody else's file stands is refused, too. Raises :class:`InvalidParameter`,
    naming the option.
    """
    names = [certificate_name(*kind) for kind in experiment.kinds()]
    for name in (ROWS, TABLE, PICTURE, *names):
        check_writable("--output", folder / name)
    refuse_foreign(folder, experiment)


def write_results(
    folder: Path,
    experiment: Experiment,
    worlds: Worlds,
    cells: Sequence[Cell],
    found: dict[str, Any],
    runs: Mapping[tuple[str, str], Run],
) -> Iterator[str]:
    r"""Write the tidy table, certificates, where matplotlib is installed the figure, and the rows.

    The files of an earlier run are removed first, and the rows are written last: what stands beside
    rows is whole and of the same experiment. Other files are left alone.

    ``runs`` are those of instance 0 that were kept while they were played; others, of a state file,
    are played again, the same.

    Yields what could not be done, in words. Raises :class:`InvalidParameter` for a file that cannot
    be written, or would replace one of somebody else.
    """
    refuse_foreign(folder, experiment)  # a run is long: somebody may have put a file there
    remove_earlier(folder)
    write_csv(folder / TABLE, experiment, cells)
    for name, text in certificates(experiment, worlds, runs):
        if isinstance(text, NotDerived):
            yield f"no {name}: {text}"
        else:
            write_whole("--output", folder / name, text)
    yield from _write_picture(folder / PICTURE, experiment, cells, found)
    write_whole("--output", folder / ROWS, write_json(found))


def _write_picture(
    path: Path, experiment: Experiment, cells: Sequence[Cell], document: Mapping[str, Any]
) -> Iterator[str]:
    lines = lines_of(experiment, cells)
    if find_spec("matplotlib") is None:
        yield f"no {PICTURE}: {NEEDED}"
        return
    if any(max(line.mean) > 0 for line in lines):
        draw_results(lines, path, bounds_of(document, lines))
        yield from without_regret(lines)
    else:
        yield f"no {PICTURE}: there is no regret to show on a logarithmic axis"


def certificates(
    experiment: Experiment, worlds: Worlds, runs: Mapping[tuple[str, str], Run]
) -> Iterator[tuple[str, str | NotDerived]]:
    r"""File names and certificates: for each algorithm and epsilon the run of instance 0.

    All its instances promise the same, as their arms and horizon are the same. An algorithm that
    protects nobody has none; in the place of a text that there cannot be stands the reason.
    """
    from bandits.certificates.certificate import certificate_of

    for task in experiment.tasks():
        if task.instance:
            continue
        run = runs.get((task.algorithm, task.epsilon))
        if run is None:
            run = play_task(experiment, worlds.environments[0], task)
        if run.guarantee is None or not run.guarantee.parts:
            continue
        name = certificate_name(task.algorithm, task.epsilon)
        try:
            found = certificate_of(run, deltas=[experiment.delta])
        except NotDerived as reason:
            yield name, reason
            continue
        yield name, found.text()


def draw_results(
    lines: Sequence[Line], path: Path, bounds: Mapping[str, Curve] = MappingProxyType({})
) -> None:
    r"""Reg(t)/t of every algorithm, a panel for each epsilon; curves without regret are left out.

    ``bounds`` are lower bounds of theorems by epsilon, each a line of its own.

    Raises :class:`InvalidParameter` where no picture can be written, and no curve has regret.
    """
    from bandits.plots.plots import Panel, draw_panels

    groups: dict[tuple[str, str], list[Curve]] = {}
    for line in lines:
        if max(line.mean) > 0:
            groups.setdefault((line.preset, line.epsilon), []).append(_curve(line))
    if not groups:
        raise InvalidParameter("path", str(path), "has no regret to show on a logarithmic axis")
    for (_, epsilon), curves in groups.items():
        if epsilon in bounds:
            curves.append(bounds[epsilon])
    panels = [
        Panel(title=title_of(preset, _decimal(epsilon)), curves=curves)
        for (preset, epsilon), curves in groups.items()
    ]
    draw_panels(path, panels, title="")


def bounds_of(document: Mapping[str, Any], lines: Sequence[Line]) -> dict[str, Curve]:
    r"""What the theorem of a hard instance says, c ln(t)/t, by epsilon as lines have it.

    ``document`` is that of rows.json. Raises :class:`InvalidParameter` for bounds in it that
    dpcore bandit run does not write.
    """
    from bandits.plots.plots import Curve

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
        reason = f"holds what dpcore bandit run does not write ({wrong})"
        raise InvalidParameter("path", ROWS, reason) from None
    return found


def without_regret(lines: Sequence[Line]) -> Iterator[str]:
    r"""What :func:`draw_results` leaves out of a picture, in words."""
    for line in lines:
        if not max(line.mean) > 0:
            yield (
                f"{line.algorithm} at epsilon {line.epsilon} is not in the picture: it has no "
                "regret to show on a logarithmic axis"
            )


def _curve(line: Line) -> Curve:
    from bandits.plots.plots import Curve

    # A logarithmic axis has no place for no regret: such points are left out.
    kept = [i for i, mean in enumerate(line.mean) if mean > 0]
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
        return up(Fraction(epsilon), _DIGITS)
    except (ValueError, ZeroDivisionError):
        raise InvalidParameter("path", epsilon, "is no epsilon") from None
