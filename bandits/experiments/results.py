r"""The output folder of ``dpcore bandit run --output``: table, plot, certificates and summary.

regret.csv is a tidy table with a row for each run and checkpoint; regret.svg plots its curves.
rows.json is the summary, with a row for each algorithm and epsilon.

A run replaces only files of an earlier run. It recognises rows.json by its schema and regret.csv by
its header. These two files state the preset, algorithms and epsilons of the earlier run, and
thereby identify its certificates and its plot. A run deletes rows.json first and writes it last, so
a folder with rows.json is complete and all of its results belong to one experiment.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from accounting.errors import NotDerived
from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.summary import ROWS, SCHEMA, mean_and_error, write_json
from bandits.policies.registry import read_algorithm
from bandits.worlds import Worlds
from dpcore.cli.figure_file import NEEDED
from dpcore.cli.files import check_writable, csv_rows, write_whole
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism
from dpcore.numbers.rounding import up
from dpcore.parse_noise import read_noise, read_sensitivity

if TYPE_CHECKING:
    from bandits.regret_plots import Curve

_DIGITS: Final = 12

COLUMNS: Final = (
    *("preset", "algorithm", "epsilon", "delta", "radius", "schedule", "horizon", "seed"),
    *("instance", "bits_per_user", "t", "regret"),
)
r"""The columns: ``regret`` is Reg(t) of one run; ``epsilon`` and ``delta`` are exact text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    r"""The curve of one algorithm and epsilon: the mean of Reg(t)/t over instances at each round t.

    ``error`` contains the standard errors of the means, which are 0 for a single instance.
    """

    preset: str
    algorithm: str
    epsilon: str
    t: tuple[int, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...]


def write_csv(path: Path, experiment: Experiment, cells: Iterable[Cell]) -> None:
    r"""Write the regret of all runs at all checkpoints; the file is written atomically."""
    text, setting = io.StringIO(), experiment.to_json()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for cell in cells:
        known = setting | cell.to_json()
        head = [known[name] for name in COLUMNS[:-2]]
        for t, regret in zip(experiment.checkpoints, cell.regret, strict=True):
            rows.writerow((*head, t, repr(regret)))
    write_whole("--output", path, text.getvalue())


def read_lines(path: Path) -> tuple[PlotLine, ...]:
    r"""Parse the curves in a file that :func:`write_csv` wrote, in the order of the file.

    Raises :class:`InvalidParameter` if the file was not written by :func:`write_csv` (the message
    names the invalid line), if it is truncated, or if its runs cannot be averaged: runs of one
    curve must have distinct instances, the same settings and the same rounds.
    """

    def refused(reason: str) -> InvalidParameter:
        return InvalidParameter("path", str(path), reason)

    # For each curve: the number of its first line, the setting, and its runs by instance.
    curves: dict[_Key, tuple[int, tuple[str, ...], dict[int, dict[int, float]]]] = {}
    for number, row in _rows(path):
        key = row["preset"], row["algorithm"], row["epsilon"]
        setting = tuple(row[name] for name in _SETTING)
        first, own, runs = curves.setdefault(key, (number, setting, {}))
        if setting != own:
            raise refused(
                f"line {number} has another setting than line {first}: plot each setting separately"
            )
        try:
            instance, t, regret = int(row["instance"]), int(row["t"]), float(row["regret"])
            if t < 1 or not math.isfinite(regret):
                raise ValueError(regret)
        except ValueError:
            raise refused(f"line {number} does not contain a valid round and regret") from None
        run = runs.setdefault(instance, {})
        if t in run:
            raise refused(f"line {number} repeats instance {instance} at t = {t}")
        run[t] = regret
    if not curves:
        raise refused("contains no runs")
    return tuple(_line(path, key, runs, own) for key, (_, own, runs) in curves.items())


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
            raise InvalidParameter(
                "path", str(path), f"line {line} does not contain a valid round and regret"
            )
        yield line, dict(zip(header, row, strict=True))


def title_of(preset: str, epsilon: str) -> str:
    r"""The title of a panel; a later run recognises the plot by this text in the file."""
    return f"{preset}, epsilon = {epsilon}"


def draw_results(
    lines: Sequence[PlotLine], path: Path, bounds: Mapping[str, Curve] = MappingProxyType({})
) -> list[str]:
    r"""Plot the regret per round Reg(t)/t of all algorithms and ``bounds``, one panel per epsilon.

    Curves without positive regret are omitted, because the axis is logarithmic. Returns a message
    for each omitted curve.
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
        raise InvalidParameter("path", str(path), "contains no positive regret for the log axis")
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
    r"""For each epsilon of a summary, the lower bound on Reg(t)/t as a curve c ln(t)/t."""
    from bandits.regret_plots import Curve

    at = tuple(float(t) for t in lines[0].t if t > 1)
    try:
        stated, found = [*document.get("lower_bounds", ())], {}
        for bound, epsilon in zip(stated, document["epsilons"] if stated else (), strict=True):
            horizon = int(document["horizon"])
            c = float(bound["regret_per_round"]) * horizon / math.log(horizon)
            if not 0 < c < math.inf:
                raise ValueError(f"the lower bound is {c}, which is not positive and finite")
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
    r"""The name of an algorithm in a plot, with its parameter, even if that has its default."""
    found = read_algorithm(algorithm)
    value = found.entry.default if found.value is None else found.value
    if found.entry.parameter is None or value is None:
        return found.entry.name
    return f"{found.entry.name} {found.entry.parameter}={value}"


def _decimal(epsilon: str) -> str:
    try:
        return up(Fraction(epsilon), _DIGITS)
    except (ValueError, ZeroDivisionError):
        raise InvalidParameter(
            "path", epsilon, "is in the column epsilon, but is not a number"
        ) from None


TABLE: Final = "regret.csv"
PICTURE: Final = "regret.svg"

_CERTIFICATES: Final = "certificate-*.json"
_LONGEST: Final = 80
_FOREIGN: Final = (
    "is not a file of dpcore bandit run --output and would be replaced: use another folder"
)

_Record: TypeAlias = set[tuple[str, str, str]]
"""The record of the run that filled a folder: its presets, algorithms and epsilons."""


def certificate_name(algorithm: str, epsilon: str) -> str:
    r"""The file name of the certificate of an algorithm and an epsilon, both as text."""
    # A number with many digits would make the name too long, so a digest replaces it.
    name = f"{algorithm}-{epsilon}".replace(":", "_").replace("/", "_")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"certificate-{name}.json"


def check_results(folder: Path, experiment: Experiment) -> None:
    r"""Raise an error, before any run, if the results cannot be written to ``folder``.

    Raises :class:`InvalidParameter`, with the name of the option, if an unrelated file would be
    replaced or if two algorithms would have the same certificate file.
    """
    kinds: dict[str, tuple[str, str]] = {}
    for kind in experiment.kinds():
        earlier = kinds.setdefault(certificate_name(*kind), kind)
        if earlier != kind:
            both = " and ".join(
                f"{algorithm} at epsilon {epsilon}" for algorithm, epsilon in (earlier, kind)
            )
            reason = f"would have a single certificate file for {both}: rename one algorithm"
            raise InvalidParameter("--output", str(folder), reason)
    for name in (ROWS, TABLE, PICTURE, *kinds):
        check_writable("--output", folder / name)
    refuse_foreign(folder, experiment)


def refuse_inputs(folder: Path | None, inputs: Mapping[str, Path | None]) -> None:
    r"""Raise an error if a run would overwrite an input file, or if two options name the same file.

    ``inputs`` maps each option to its file, or to None.
    """
    named = [(option, path) for option, path in inputs.items() if path is not None]
    for number, (option, path) in enumerate(named):
        if folder is not None and any(_same(path, place) for place in _results(folder, path)):
            raise InvalidParameter(option, str(path), "would be overwritten by --output")
        for other, earlier in named[:number]:
            if _same(path, earlier):
                raise InvalidParameter(option, str(path), f"is already the file of {other}")


def _results(folder: Path, path: Path) -> Iterator[Path]:
    yield from (folder / name for name in (ROWS, TABLE, PICTURE))
    yield from folder.glob(_CERTIFICATES)
    # A certificate that does not exist yet, under any form of its path.
    wanted = Path(os.path.realpath(path)).name
    if Path(wanted).match(_CERTIFICATES):
        yield folder / wanted


def _same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def refuse_foreign(folder: Path, experiment: Experiment) -> None:
    r"""Raise an error if this experiment would replace a file that no earlier run wrote."""
    record = _record_of(folder)
    for place in (folder / ROWS, folder / TABLE):
        if os.path.lexists(place) and _read(place) is None:
            raise InvalidParameter("--output", str(place), _FOREIGN)
    picture = folder / PICTURE
    if os.path.lexists(picture) and not _shows(picture, record):
        raise InvalidParameter("--output", str(picture), _FOREIGN)
    certified = _certified(folder, record)
    for kind in experiment.kinds():
        place = folder / certificate_name(*kind)
        if os.path.lexists(place) and place not in certified:
            raise InvalidParameter("--output", str(place), _FOREIGN)


def write_results(
    folder: Path,
    experiment: Experiment,
    worlds: Worlds,
    cells: Sequence[Cell],
    found: dict[str, Any],
) -> Iterator[str]:
    r"""Write regret.csv, the certificates, rows.json, and the plot if matplotlib is installed.

    Files of an earlier run are removed first, and rows.json is written last, so all results next to
    it belong to the same experiment. Unrelated files are kept.

    Yields a message for each omitted file or curve. Files are written as the caller iterates.
    Raises :class:`InvalidParameter` if a file cannot be written or would replace an unrelated file.
    """
    refuse_foreign(folder, experiment)  # checked again after a long run
    remove_earlier(folder)
    write_csv(folder / TABLE, experiment, cells)
    for name, text in certificates(experiment, worlds, cells):
        if isinstance(text, NotDerived):
            yield f"no {name}: {text}"
        else:
            write_whole("--output", folder / name, text)
    yield from _write_picture(folder, found)
    write_whole("--output", folder / ROWS, write_json(found))


def _write_picture(folder: Path, document: Mapping[str, Any]) -> Iterator[str]:
    if find_spec("matplotlib") is None:
        yield f"no {PICTURE}: {NEEDED}"
        return
    lines = read_lines(folder / TABLE)
    if any(max(line.mean) > 0 for line in lines):
        yield from draw_results(lines, folder / PICTURE, bounds_of(document, lines))
    else:
        yield f"no {PICTURE}: no algorithm has positive regret for the logarithmic axis"


def certificates(
    experiment: Experiment, worlds: Worlds, cells: Sequence[Cell]
) -> Iterator[tuple[str, str | NotDerived]]:
    r"""Yield the file name and the text of the certificate of each algorithm and epsilon.

    The certificate is for instance 0. If there is none, the text is replaced by the
    :class:`NotDerived` error. Algorithms without privacy or without releases are skipped.
    """
    from bandits.certificates.certify_run import certify_run

    for cell in cells:
        if cell.instance:
            continue
        arms = worlds.environments[0].arms
        derived = experiment.guarantee(cell.algorithm, cell.epsilon, arms)
        if derived is None or not derived.parts:
            continue
        name = certificate_name(cell.algorithm, cell.epsilon)
        try:
            found = certify_run(
                experiment.policy(cell.algorithm, cell.epsilon, arms).name,
                derived,
                {
                    Mechanism(noise=read_noise(n), sensitivity=read_sensitivity("released", s)): k
                    for n, s, k in cell.released
                },
                arms=arms,
                horizon=experiment.horizon,
                simulated=True,
                deltas=[experiment.delta],
            )
        except NotDerived as reason:
            yield name, reason
            continue
        yield name, found.text()


def remove_earlier(folder: Path) -> None:
    r"""Remove the files of an earlier run, as identified by rows.json or regret.csv.

    All other files are kept. rows.json is removed first, because a folder without it counts as
    incomplete. regret.csv is removed last, because it also identifies the other files.
    """
    record = _record_of(folder)
    certified = _certified(folder, record)
    try:
        for place in (folder / ROWS, *certified, folder / PICTURE, folder / TABLE):
            place.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidParameter("--output", str(folder), error.strerror or str(error)) from None


def _record_of(folder: Path) -> _Record:
    return {each for name in (ROWS, TABLE) for each in _read(folder / name) or ()}


def _read(place: Path) -> _Record | None:
    # Returns None if no run wrote the file.
    return _read_rows(place) if place.name == ROWS else _read_table(place)


def _read_rows(place: Path) -> _Record | None:
    found = _json(place)
    if found.get("schema") != SCHEMA:
        return None
    algorithms, epsilons = (_words(found.get(name)) for name in ("algorithms", "epsilons"))
    return {*product(_words([found.get("preset")]), algorithms, epsilons)}


def _read_table(place: Path) -> _Record | None:
    try:
        if not place.is_file():
            return None
        with place.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                return None
            return {(preset, algorithm, epsilon) for preset, algorithm, epsilon, *_ in rows}
    except (OSError, ValueError, csv.Error):
        return None


def _words(found: object) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _certified(folder: Path, record: _Record) -> list[Path]:
    # The certificates in the folder that belong to the record.
    from bandits.certificates.recheck import SCHEMA as CERTIFICATE

    names = sorted({certificate_name(algorithm, epsilon) for _, algorithm, epsilon in record})
    places = (folder / name for name in names)
    return [place for place in places if _json(place).get("schema") == CERTIFICATE]


def _shows(place: Path, record: _Record) -> bool:
    try:
        data = place.read_bytes() if place.is_file() else b""
    except OSError:
        return False
    return any(title_of(preset, "").encode() in data for preset, _, _ in record)


def _json(place: Path) -> dict[str, Any]:
    # The result is empty unless ``place`` is a regular file with a JSON object.
    try:
        found = json.loads(place.read_bytes()) if place.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
