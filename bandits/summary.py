r"""What an experiment says: a row for each algorithm and epsilon, and the document of all rows.

Means and standard errors are over instances, which are worlds drawn apart; a row says what every
run of its algorithm promises a user, derived from its noise and never from its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any, Final

from bandits.experiment import Cell, Experiment
from bandits.play import RunGuarantee
from bandits.presets import Worlds
from dpcore.parameter import RationalLike, rational, write_rational

__all__ = ["SCHEMA", "Row", "document", "guarantee_json", "mean_and_error", "rows_of", "write_json"]

SCHEMA: Final = "dpcore-bandit/1"

_SIMULATED: Final = (
    "a simulation: rewards and noise come from the seed; a guarantee is that of the algorithm with "
    "noise from the operating system"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""One algorithm at one epsilon.

    ``regret_per_round`` is the mean of Reg(T)/T over instances, ``standard_error`` its standard
    error (None for one instance), ``by_instance`` each Reg(T)/T. ``bits_per_user`` is the most that
    a user sent in any instance, ``mean_bits_per_user`` the mean. ``guarantee`` is as
    :func:`guarantee_json` writes it.
    """

    algorithm: str
    epsilon: float
    horizon: int
    instances: int
    regret_per_round: float
    standard_error: float | None
    bits_per_user: int
    mean_bits_per_user: float
    guarantee: dict[str, Any]
    by_instance: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, in order."""
        return {name: getattr(self, name) for name in self.__slots__}


def rows_of(experiment: Experiment, worlds: Worlds, cells: Iterable[Cell]) -> tuple[Row, ...]:
    r"""The rows, in the order of the cells, which are all those of the experiment."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.algorithm, cell.epsilon), []).append(cell)
    return tuple(
        _row(experiment, worlds.arms, algorithm, epsilon, found)
        for (algorithm, epsilon), found in grouped.items()
    )


def _row(experiment: Experiment, arms: int, algorithm: str, epsilon: str, cells: list[Cell]) -> Row:
    each = tuple(cell.regret[-1] / experiment.horizon for cell in cells)
    mean, error = mean_and_error(each)
    promised = experiment.guarantee(algorithm, epsilon, arms)
    return Row(
        algorithm=algorithm,
        epsilon=float(Fraction(epsilon)),
        horizon=experiment.horizon,
        instances=len(cells),
        regret_per_round=mean,
        standard_error=error,
        bits_per_user=max(cell.bits_per_user for cell in cells),
        mean_bits_per_user=math.fsum(cell.mean_bits_per_user for cell in cells) / len(cells),
        guarantee=guarantee_json(promised, experiment.delta),
        by_instance=each,
    )


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    r"""The mean and its standard error, s/sqrt(n); None where one value says nothing of it.

    >>> mean_and_error((1.0, 3.0)), mean_and_error((2.0,))
    ((2.0, 1.0), (2.0, None))
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (count - 1) / count)


def guarantee_json(promised: RunGuarantee | None, delta: RationalLike) -> dict[str, Any]:
    r"""What a run promises each user, as a sentence and as numbers.

    ``epsilon_upper`` is the upper end of epsilon at ``delta``, None where nothing is promised.

    >>> guarantee_json(None, "1e-6")["text"]
    'none: rewards are released as they are'
    """
    exact = rational("delta", delta)
    if promised is None:
        return {
            "text": "none: rewards are released as they are",
            "pure": None,
            "delta": write_rational(exact),
            "epsilon_upper": None,
            "assumptions": [],
        }
    upper = promised.epsilon(exact).upper_float
    pure = promised.pure()
    if pure is not None:
        words = f"{float(Fraction(pure.epsilon)):g}-DP"
    elif math.isfinite(upper):
        words = f"({_up(upper)}, {float(exact):g})-DP"
    else:
        words = f"no finite epsilon at delta {float(exact):g}"
    return {
        "text": f"{words} for each user, who is new at every pull",
        "pure": None if pure is None else write_rational(Fraction(pure.epsilon)),
        "delta": write_rational(exact),
        "epsilon_upper": upper if math.isfinite(upper) else None,
        "assumptions": [*promised.assumptions],
    }


def _up(value: float) -> str:
    # Four digits, rounded up: a sentence is no smaller than its number.
    scale = 10 ** (math.floor(math.log10(value)) - 3) if value > 0 else 1
    shown = f"{math.ceil(value / scale) * scale:.4g}"
    return shown if float(shown) >= value else f"{(math.ceil(value / scale) + 1) * scale:.4g}"


def document(experiment: Experiment, worlds: Worlds, rows: Sequence[Row]) -> dict[str, Any]:
    r"""Everything, as ``dpcore bandit run --json`` prints it."""
    fields = experiment.to_json()
    fields.pop("checkpoints")
    return {
        "schema": SCHEMA,
        **fields,
        "data": worlds.data,
        "note": _SIMULATED,
        "rows": [row.to_json() for row in rows],
        "versions": {name: version(name) for name in ("dpcore", "numpy")},
    }


def write_json(found: dict[str, Any]) -> str:
    r"""The document as text; what is infinite or undefined is None in it, by construction.

    >>> write_json({"schema": SCHEMA}).splitlines()[1]
    '  "schema": "dpcore-bandit/1"'
    """
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
