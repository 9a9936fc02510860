r"""Two documents side by side: the ratio of their regrets, row by row, with its standard error.

R = mean(a)/mean(b) over instances. Instance i is the same world in both documents, so where both
have it the error is that of pairs: sd(a_i - R b_i)/(sqrt(n) mean(b)), to first order. Otherwise the
two errors add up as those of independent means.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bandits.experiments.results import ROWS, require_whole
from bandits.experiments.summary import SCHEMA, mean_and_error, paired_ratio
from dpcore.command.input_file import read_text
from dpcore.errors import InvalidParameter

__all__ = ["Ratio", "alone", "compare", "read_document"]

_SAME: Final = ("preset", "arms", "horizon", "data")
_MOST: Final = 10**6
_MOST_TEXT: Final = 1 << 30
# Less regret than that counts as 0: a ratio to it would say nothing, and could be infinite.
_LEAST: Final = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    r"""Regret of A over regret of B; None where B has none, or less than 10^-30.

    ``error`` is None for one instance.
    """

    algorithm: str
    epsilon: float
    first: float
    second: float
    ratio: float | None
    error: float | None
    paired: bool

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, the error as ``standard_error``."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["standard_error"] = found.pop("error")
        return found


def read_document(path: Path, *, argument: str = "path") -> dict[str, Any]:
    r"""What ``dpcore bandit run`` wrote: a file, or the rows.json of a folder.

    Raises :class:`InvalidParameter`, naming the argument, for anything else.
    """
    place = path
    if path.is_dir():
        require_whole(argument, path)
        place = path / ROWS
    text = read_text(argument, place, most=_MOST_TEXT)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(argument, str(place), f"is not JSON ({error})") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InvalidParameter(argument, str(place), f"is not of schema {SCHEMA}")
    try:
        rows = [_key(row) for row in found["rows"]]
        if len(set(rows)) < len(rows):
            raise ValueError("an algorithm with the same epsilon twice")
        for row in found["rows"]:
            _check_regret(row["by_instance"])
        _ = [found[name] for name in _SAME]
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        reason = f"holds what dpcore bandit run does not write ({wrong})"
        raise InvalidParameter(argument, str(place), reason) from None
    return found


def _key(row: dict[str, Any]) -> tuple[str, float]:
    # What a row is matched by; checked when a document is read.
    algorithm, epsilon = row["algorithm"], row["epsilon"]
    if not isinstance(algorithm, str):
        raise TypeError("an algorithm that is no name")
    if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:
        raise ValueError("an epsilon that is no number > 0")
    return algorithm, float(epsilon)


def _check_regret(values: Any) -> None:
    if not isinstance(values, list) or not values:
        raise ValueError("a row without regret")
    for value in values:
        # Of super arms it may exceed 1, and be below 0 of an oracle that finds a share only.
        if type(value) not in (int, float) or not abs(value) <= _MOST:
            raise ValueError(f"a regret per round outside of [-{_MOST}, {_MOST}]")


def compare(first: dict[str, Any], second: dict[str, Any]) -> tuple[Ratio, ...]:
    r"""The rows of both with the same algorithm and epsilon, in the order of the first.

    >>> one = {"preset": "cz/easy", "arms": 10, "horizon": 1000, "data": None}
    >>> row = {"algorithm": "se", "epsilon": 1.0, "by_instance": [0.2, 0.4]}
    >>> half = {**row, "by_instance": [0.1, 0.2]}
    >>> [(r.ratio, r.error) for r in compare({**one, "rows": [row]}, {**one, "rows": [half]})]
    [(2.0, 0.0)]

    Raises :class:`InvalidParameter` for experiments in other worlds or of other lengths, and where
    no row has a partner.
    """
    for name in _SAME:
        if first[name] != second[name]:
            reason = f"must be the same in A and B: {second[name]} in B"
            raise InvalidParameter(name, first[name], reason)
    partners = {_key(row): row for row in second["rows"]}
    pairs = [(row, partners[_key(row)]) for row in first["rows"] if _key(row) in partners]
    if not pairs:
        reason = "must have an algorithm and epsilon that B has, too"
        raise InvalidParameter("rows", len(first["rows"]), reason)
    return tuple(_ratio(one, other) for one, other in pairs)


def alone(first: dict[str, Any], second: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    r"""Algorithm and epsilon of every row of the first that has no partner in the second.

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
        error=error,
        paired=paired,
    )
