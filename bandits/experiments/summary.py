r"""The summary of an experiment as a JSON document, with a row for each algorithm and epsilon.

Means and standard errors are over instances, that is, independent simulated worlds. A row also
states the guarantee of the algorithm for each user, derived from the noise.

Two documents A and B are compared row by row. Let a_i and b_i be the regrets in instance i, which
is the same world in both documents. The comparison computes R = mean(a)/mean(b) and its standard
error. If both documents have the same number n of instances, the standard error is computed from
the pairs (a_i, b_i), to first order: sd(a_i - R b_i)/(sqrt(n) mean(b)). Otherwise the two means are
treated as independent.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

from bandits.experiments.experiment import Cell, Experiment
from bandits.policies.registry import read_algorithm
from bandits.privatizers.run_guarantee import RunGuarantee
from bandits.worlds import Worlds
from bandits.worlds.combinatorial import lower_bound
from dpcore.cli.files import read_text
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.enclosure import decimal_up
from dpcore.numbers.parameter import RationalLike, rational, write_rational
from dpcore.numbers.rounding import up

SCHEMA: Final = "dpcore-bandit/2"
ROWS: Final = "rows.json"

Guarantees: TypeAlias = dict[tuple[str, str], dict[str, Any]]
r"""A mapping from (algorithm, epsilon), both as text, to the guarantee."""

_SHORT: Final = 12
_OWN: Final = ("users", "horizon", "algorithms", "calibration", "radius")
_LENGTHS: Final = ("precision", "modulus")

_SIMULATED: Final = (
    "a simulation: rewards and noise come from the seed; guarantees are for the algorithms with "
    "noise from the operating system"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""The summary of all runs of one algorithm at one epsilon, which is rounded up to a float.

    ``by_instance`` lists the regret per round Reg(T)/T of each instance over T = ``horizon``
    rounds, ``regret_per_round`` is its mean, and ``standard_error`` that of the mean (None for one
    instance). ``bits_per_user`` is the largest number of bits that a user sent in any
    participation, ``mean_bits_per_user`` the mean. ``communication`` contains the mean totals of
    values (``numbers``) and ``bits`` that users sent. ``out_of_users`` is the mean number of rounds
    that remained when too few users had visits left. ``guarantee`` is the result of
    :func:`guarantee_json`.
    """

    algorithm: str
    epsilon: float
    delta: float
    horizon: int
    instances: int
    regret_per_round: float
    standard_error: float | None
    bits_per_user: int
    mean_bits_per_user: float
    communication: dict[str, float]
    out_of_users: float
    guarantee: dict[str, Any]
    by_instance: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def guarantees_of(
    experiment: Experiment, arms: int, *, progress: Callable[[int], None] | None = None
) -> Guarantees:
    r"""The guarantee (:func:`guarantee_json`) of each algorithm and epsilon; nothing is played."""
    found: Guarantees = {}
    for algorithm, epsilon in experiment.kinds():
        try:
            derived = experiment.guarantee(algorithm, epsilon, arms)
            most = experiment.max_visits
            found[algorithm, epsilon] = guarantee_json(derived, experiment.delta, max_visits=most)
            if read_algorithm(algorithm).entry.world == "linear":
                found[algorithm, epsilon] |= _labelled(found[algorithm, epsilon], derived, epsilon)
        except DpcoreError as error:
            if isinstance(error, InvalidParameter) and error.argument in _OWN:
                raise
            raise InvalidParameter(f"epsilon (for {algorithm})", epsilon, _reason(error)) from error
        if progress is not None:
            progress(len(found))
    return found


def _labelled(
    written: dict[str, Any], derived: RunGuarantee | None, epsilon: str
) -> dict[str, Any]:
    # Adds the true delta at the requested epsilon; the text states it if it exceeds the requested
    # delta.
    if derived is None:
        return {"delta_upper": None}
    true = derived.delta(epsilon).upper
    found: dict[str, Any] = {"delta_upper": decimal_up(Fraction(true))}
    if true > Fraction(written["delta"]):
        found["text"] = f"{written['text']}; at epsilon {epsilon} the true delta is {up(true)}"
    return found


def _reason(error: DpcoreError) -> str:
    if not isinstance(error, InvalidParameter):
        return f"there is no guarantee at this delta and horizon ({error})"
    if error.argument not in _LENGTHS:
        return f"the algorithm cannot be set up at this delta and horizon ({error})"
    reason = f"this needs {error.argument} = {error.value}, which {error.reason}"
    return f"{reason}; use a smaller epsilon, horizon or s"


def rows_of(
    experiment: Experiment, cells: Iterable[Cell], guarantees: Guarantees
) -> tuple[Row, ...]:
    r"""Summarise the results of all runs: one row for each algorithm and epsilon."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.algorithm, cell.epsilon), []).append(cell)
    return tuple(_row(experiment, found, guarantees[key]) for key, found in grouped.items())


def _row(experiment: Experiment, cells: list[Cell], derived: dict[str, Any]) -> Row:
    horizon = experiment.horizon
    each = tuple(cell.regret[-1] / horizon for cell in cells)
    mean, error = mean_and_error(each)
    return Row(
        algorithm=cells[0].algorithm,
        epsilon=decimal_up(Fraction(cells[0].epsilon)),
        delta=decimal_up(rational("delta", experiment.delta)),
        horizon=horizon,
        instances=len(cells),
        regret_per_round=mean,
        standard_error=error,
        bits_per_user=max(cell.bits_per_user for cell in cells),
        mean_bits_per_user=fmean(cell.mean_bits_per_user for cell in cells),
        communication={
            "numbers": fmean(cell.numbers for cell in cells),
            "bits": fmean(cell.bits_sent for cell in cells),
        },
        out_of_users=fmean(cell.out_of_users for cell in cells),
        guarantee=derived,
        by_instance=each,
    )


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    r"""The mean of ``values`` and its standard error, which is None for a single value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (count - 1) / count)


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float | None]:
    """Return R = mean(above)/mean(below) and its first-order standard error for paired values."""
    mean, _ = mean_and_error(below)
    ratio = mean_and_error(above)[0] / mean
    _, left = mean_and_error([a - ratio * b for a, b in zip(above, below, strict=True)])
    return ratio, None if left is None else left / mean


def guarantee_json(
    derived: RunGuarantee | None, delta: RationalLike, *, max_visits: int | None = None
) -> dict[str, Any]:
    r"""The guarantee of a run for each user over all ``max_visits`` visits, as text and numbers.

    ``epsilon_upper`` is the upper bound on epsilon at ``delta``, or None if there is no finite
    bound. All numbers in the text are rounded up.
    """
    exact = rational("delta", delta)
    text, pure, upper = "none: rewards are released as they are", None, math.inf
    if derived is not None:
        bound, largest = derived.epsilon(exact), derived.pure().upper
        pure, upper = largest if isinstance(largest, Fraction) else None, bound.upper_float
        if pure is not None and (max_visits is None or pure <= bound.upper):
            words = f"{written_up(pure)}-DP"
        elif math.isfinite(upper):
            words = f"({up(bound.upper)}, {written_up(exact)})-DP"
        else:
            words = f"no finite epsilon at delta {written_up(exact)}"
        text = f"{words}{for_each_user(max_visits)}"
    return {
        "text": text,
        "pure": None if pure is None else write_rational(pure),
        "delta": write_rational(exact),
        "epsilon_upper": upper if math.isfinite(upper) else None,
        "assumptions": [] if derived is None else [*derived.assumptions],
    }


def for_each_user(max_visits: int | None) -> str:
    r"""The end of a guarantee's text: for whom it holds, and for how many visits."""
    if max_visits is None:
        return " for each user, who is new at every pull"
    return f" for each user, over at most {max_visits} visits"


def written_up(value: Fraction) -> str:
    r"""Format ``value`` exactly if it is a short decimal or fraction; otherwise round it up."""
    short = up(value, _SHORT)
    if Fraction(short) == value:
        return short
    fraction = write_rational(value)
    return fraction if len(fraction) <= _SHORT else short


def document(experiment: Experiment, worlds: Worlds, rows: Sequence[Row]) -> dict[str, Any]:
    r"""The JSON document that ``dpcore bandit run --json`` prints."""
    fields = experiment.to_json()
    fields.pop("checkpoints")
    return {
        "schema": SCHEMA,
        **fields,
        "data": worlds.data,
        "note": _SIMULATED,
        "rows": [row.to_json() for row in rows],
        **({"lower_bounds": bounds} if (bounds := lower_bounds(experiment)) else {}),
        **({"remarks": noted} if (noted := remarks(rows)) else {}),
        "versions": {name: version(name) for name in ("dpcore", "numpy")},
    }


def remarks(rows: Sequence[Row]) -> list[str]:
    r"""Warnings about rounds without a release, because there were too few rounds or users."""
    silent = {row.algorithm: row for row in rows if row.guarantee["pure"] == "0"}
    return [
        *(
            f"{name} used no reward and is 0-DP: its first batch ends after round "
            f"{row.horizon:,}. Use a longer --horizon."
            for name, row in silent.items()
        ),
        *(
            f"{row.algorithm} at epsilon {up(Fraction(repr(row.epsilon)), _SHORT)} ran out of "
            f"users: nothing was learned from {row.out_of_users:,.0f} of {row.horizon:,} rounds. "
            "Use more --users or --visits."
            for row in rows
            if row.out_of_users
        ),
    ]


def lower_bounds(experiment: Experiment) -> list[dict[str, Any]]:
    r"""A theorem's lower bound on regret at each epsilon; empty if the preset has no theorem."""
    found = []
    for epsilon in experiment.epsilons:
        bound = lower_bound(
            experiment.preset,
            arms=experiment.arms or 0,
            super_arm=experiment.super_arm or 0,
            horizon=experiment.horizon,
            epsilon=epsilon,
        )
        if bound is not None:
            each = {"theorem": bound.theorem, "epsilon": decimal_up(rational("epsilon", epsilon))}
            per_round = bound.regret / experiment.horizon
            found.append({**each, "regret_per_round": per_round, "of": bound.of})
    return found


def write_json(found: dict[str, Any]) -> str:
    r"""The document as indented JSON text; its numbers must be finite."""
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


_SAME: Final = ("preset", "arms", "horizon", "data")
_MOST: Final = 10**6
_MOST_TEXT: Final = 1 << 30
# Smaller regret counts as 0: a ratio to it would be meaningless and could be infinite.
_LEAST: Final = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    r"""The regret per round of A (``first``) and of B (``second``) in one row, and their ratio.

    ``ratio`` is None if the regret of B is below 10^-30.
    """

    algorithm: str
    epsilon: float
    first: float
    second: float
    ratio: float | None
    paired: bool
    standard_error: float | None


def read_document(path: Path, *, argument: str = "path") -> dict[str, Any]:
    r"""Parse the output of ``dpcore bandit run``: a file, or the rows.json of a folder.

    Raises :class:`InvalidParameter`, with the name ``argument``, if the file is not such an output.
    """
    place = path
    if path.is_dir():
        require_whole(argument, path)
        place = path / ROWS
    text = read_text(argument, place, most=_MOST_TEXT)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        must = "must be a folder of dpcore bandit run --output, its rows.json, or --json output"
        raise InvalidParameter(argument, str(place), f"{must} ({error})") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InvalidParameter(argument, str(place), f"must have schema {SCHEMA}")
    try:
        rows = [_key(row) for row in found["rows"]]
        if len(set(rows)) < len(rows):
            raise ValueError("two rows have the same algorithm and epsilon")
        for row in found["rows"]:
            values = row["by_instance"]
            if not isinstance(values, list) or not values:
                raise ValueError("a row contains no regret")
            # The regret may exceed 1 for super arms, and be negative for an approximate oracle.
            if not all(type(each) in (int, float) and abs(each) <= _MOST for each in values):
                raise ValueError(f"a regret per round is outside [-{_MOST}, {_MOST}]")
        _ = [found[name] for name in _SAME]
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        reason = f"contains invalid data ({wrong})"
        raise InvalidParameter(argument, str(place), reason) from None
    return found


def require_whole(argument: str, folder: Path) -> None:
    r"""Raise an error if ``folder`` does not contain rows.json, which a run writes last."""
    if not os.path.lexists(folder / ROWS):
        reason = f"is incomplete: it has no {ROWS}, which dpcore bandit run --output writes last"
        raise InvalidParameter(argument, str(folder), reason)


def _key(row: dict[str, Any]) -> tuple[str, float]:
    # The key by which rows are matched; checked when a document is read.
    algorithm, epsilon = row["algorithm"], row["epsilon"]
    if not isinstance(algorithm, str):
        raise TypeError("an algorithm name is not text")
    if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:
        raise ValueError("an epsilon is not a number > 0")
    return algorithm, float(epsilon)


def compare(first: dict[str, Any], second: dict[str, Any]) -> tuple[Ratio, ...]:
    r"""Compare the rows with the same algorithm and epsilon in two documents, ordered by ``first``.

    >>> one = {"preset": "cz/easy", "arms": 10, "horizon": 1000, "data": None}
    >>> row = {"algorithm": "se", "epsilon": 1.0, "by_instance": [0.2, 0.4]}
    >>> half = {**row, "by_instance": [0.1, 0.2]}
    >>> (found,) = compare({**one, "rows": [row]}, {**one, "rows": [half]})
    >>> found.ratio, found.standard_error
    (2.0, 0.0)

    Raises :class:`InvalidParameter` if the experiments have different worlds or lengths, or no rows
    match.
    """
    for name in _SAME:
        if first[name] != second[name]:
            reason = f"must be the same in A and B, but is {second[name]} in B"
            raise InvalidParameter(name, first[name], reason)
    partners = {_key(row): row for row in second["rows"]}
    pairs = [(row, partners[_key(row)]) for row in first["rows"] if _key(row) in partners]
    if not pairs:
        reason = (
            "has no algorithm and epsilon in common with B; to compare two algorithms, run both in "
            "one experiment: dpcore bandit run PRESET --algorithms a,b"
        )
        raise InvalidParameter("A", f"{len(first['rows'])} results", reason)
    return tuple(_ratio(one, other) for one, other in pairs)


def alone(first: dict[str, Any], second: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    r"""The pairs (algorithm, epsilon) of the rows in ``first`` that match no row in ``second``.

    >>> se, dp = ({"algorithm": name, "epsilon": 1} for name in ("se", "dp-se"))
    >>> alone({"rows": [se, dp]}, {"rows": [dp]})
    (('se', 1.0),)
    """
    there = {_key(row) for row in second["rows"]}
    return tuple(key for key in map(_key, first["rows"]) if key not in there)


def _ratio(one: dict[str, Any], other: dict[str, Any]) -> Ratio:
    a, b = (tuple(map(float, row["by_instance"])) for row in (one, other))
    (mean_a, error_a), (mean_b, error_b) = mean_and_error(a), mean_and_error(b)
    paired = len(a) == len(b)
    ratio, error = None, None
    if mean_b >= _LEAST:
        ratio = mean_a / mean_b
        if paired:
            ratio, error = paired_ratio(a, b)
        elif error_a is not None and error_b is not None:
            error = math.hypot(error_a, ratio * error_b) / mean_b
    algorithm, epsilon = _key(one)
    return Ratio(
        algorithm=algorithm,
        epsilon=epsilon,
        first=mean_a,
        second=mean_b,
        ratio=ratio,
        paired=paired,
        standard_error=error,
    )
