r"""What an experiment says: a row for each algorithm and epsilon, and the document of all rows.

Means and standard errors are over instances, which are worlds drawn apart; a row says what every
run of its algorithm promises a user, derived from its noise and never from its name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from statistics import fmean
from typing import Any, Final, TypeAlias

from bandits.experiments.experiment import Cell, Experiment, float_up
from bandits.policies.registry import read_algorithm
from bandits.privatizers.promise import RunGuarantee
from bandits.worlds import Worlds
from bandits.worlds.combinatorial import lower_bound
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import RationalLike, rational, write_rational
from dpcore.numbers.rounding import up

__all__ = ["SCHEMA", "Promises", "Row", "document", "for_each_user", "guarantee_json"]
__all__ += ["lower_bounds", "mean_and_error", "paired_ratio", "promises_of", "remarks", "rows_of"]
__all__ += ["write_json", "written_up"]

SCHEMA: Final = "dpcore-bandit/1"

Promises: TypeAlias = dict[tuple[str, str], dict[str, Any]]
r"""What an algorithm promises at an epsilon, both as they are written."""

_SHORT: Final = 12
_OWN: Final = ("users", "horizon", "algorithms", "calibration", "radius")
_LENGTHS: Final = ("precision", "modulus")

_SIMULATED: Final = (
    "a simulation: rewards and noise come from the seed; a guarantee is that of the algorithm with "
    "noise from the operating system"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""One algorithm at one epsilon, which is rounded up where no float is it.

    ``regret_per_round`` is the mean of Reg(T)/T over instances, ``standard_error`` its standard
    error (None for one instance), ``by_instance`` each Reg(T)/T. ``bits_per_user`` is the most that
    a user sent in any instance, ``mean_bits_per_user`` the mean. ``communication`` is what
    all users sent together, the mean over instances: ``numbers`` and ``bits``. ``out_of_users`` are
    the rounds that were left when too few users had visits left, the mean over instances.
    ``guarantee`` is as :func:`guarantee_json` writes it.
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
        r"""The fields by name, in order."""
        return {name: getattr(self, name) for name in self.__slots__}


def promises_of(
    experiment: Experiment, arms: int, *, progress: Callable[[int], None] | None = None
) -> Promises:
    r"""What each algorithm promises at each epsilon, as :func:`guarantee_json`; nothing is drawn.

    Every policy of the experiment is made for it, so whoever asks before a run hears before it what
    cannot be made. ``progress`` is given the number of promises there are.

    Raises :class:`InvalidParameter` for an epsilon that an algorithm cannot be made for, or whose
    promise cannot be bounded: it names the algorithm.
    """
    found: Promises = {}
    for algorithm, epsilon in experiment.kinds():
        try:
            promised = experiment.guarantee(algorithm, epsilon, arms)
            most = experiment.max_visits
            found[algorithm, epsilon] = guarantee_json(promised, experiment.delta, max_visits=most)
            if read_algorithm(algorithm).entry.world == "linear":
                found[algorithm, epsilon] |= _labelled(found[algorithm, epsilon], promised, epsilon)
        except DpcoreError as error:
            if isinstance(error, InvalidParameter) and error.argument in _OWN:
                raise
            raise InvalidParameter(f"epsilon (for {algorithm})", epsilon, _reason(error)) from error
        if progress is not None:
            progress(len(found))
    return found


def _labelled(
    written: dict[str, Any], promised: RunGuarantee | None, epsilon: str
) -> dict[str, Any]:
    # The true delta at the epsilon that was asked for, in words where it is not the one asked for.
    if promised is None:
        return {"delta_upper": None}
    true = promised.delta(epsilon).upper
    if true <= Fraction(written["delta"]):
        return {"delta_upper": float_up(Fraction(true))}
    words = f"{written['text']}; at epsilon {epsilon} the true delta is {up(true)}"
    return {"delta_upper": float_up(Fraction(true)), "text": words}


def _reason(error: DpcoreError) -> str:
    if not isinstance(error, InvalidParameter):
        return f"nothing can be promised at this delta and horizon ({error})"
    if error.argument not in _LENGTHS:
        return f"at this delta and horizon it cannot be made ({error})"
    reason = f"it would need a {error.argument} of {error.value}, which {error.reason}"
    return f"{reason}; take a smaller epsilon, horizon or s"


def rows_of(
    experiment: Experiment,
    cells: Iterable[Cell],
    promises: Promises,
) -> tuple[Row, ...]:
    r"""The rows, in the order of the cells, which are all those of the experiment."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.algorithm, cell.epsilon), []).append(cell)
    return tuple(_row(experiment, found, promises[key]) for key, found in grouped.items())


def _row(experiment: Experiment, cells: list[Cell], promised: dict[str, Any]) -> Row:
    horizon = experiment.horizon
    each = tuple(cell.regret[-1] / horizon for cell in cells)
    mean, error = mean_and_error(each)
    return Row(
        algorithm=cells[0].algorithm,
        epsilon=float_up(Fraction(cells[0].epsilon)),
        delta=float_up(rational("delta", experiment.delta)),
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
        guarantee=promised,
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


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float | None]:
    r"""R = mean(a)/mean(b) of n pairs and, to first order, its error sd(a_i - R b_i)/(sqrt(n) b).

    The mean below is > 0; the error is None for one pair.

    >>> paired_ratio((1.0, 2.0, 3.0), (2.0, 4.0, 6.0))
    (0.5, 0.0)
    """
    mean, _ = mean_and_error(below)
    ratio = mean_and_error(above)[0] / mean
    _, left = mean_and_error([a - ratio * b for a, b in zip(above, below, strict=True)])
    return ratio, None if left is None else left / mean


def guarantee_json(
    promised: RunGuarantee | None, delta: RationalLike, *, max_visits: int | None = None
) -> dict[str, Any]:
    r"""What a run promises each user, as a sentence and as numbers; for all of ``max_visits``.

    ``epsilon_upper`` is the upper end of epsilon at ``delta``, None where nothing is promised. No
    number of the sentence is smaller than what it stands for.

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
    bound = promised.epsilon(exact)
    upper = bound.upper_float
    largest = promised.pure().upper
    pure = largest if isinstance(largest, Fraction) else None
    if pure is not None and (max_visits is None or pure <= bound.upper):
        words = f"{written_up(pure)}-DP"
    elif math.isfinite(upper):
        words = f"({up(bound.upper)}, {written_up(exact)})-DP"
    else:
        words = f"no finite epsilon at delta {written_up(exact)}"
    return {
        "text": f"{words}{for_each_user(max_visits)}",
        "pure": None if pure is None else write_rational(pure),
        "delta": write_rational(exact),
        "epsilon_upper": upper if math.isfinite(upper) else None,
        "assumptions": [*promised.assumptions],
    }


def for_each_user(max_visits: int | None) -> str:
    r"""The end of a sentence: for whom a promise is, users who are new or who come back.

    >>> for_each_user(None), for_each_user(16)
    (' for each user, who is new at every pull', ' for each user, over at most 16 visits')
    """
    if max_visits is None:
        return " for each user, who is new at every pull"
    return f" for each user, over at most {max_visits} visits"


def written_up(value: Fraction) -> str:
    r"""``value`` exactly, as a decimal or a fraction, where that is short; else rounded up.

    >>> [written_up(Fraction(text)) for text in ("0.5", "1/3", "1.23456499e-6", "1e-400")]
    ['0.5', '1/3', '1.23456499e-6', '1e-400']
    >>> written_up(Fraction(10**20 + 1, 3 * 10**20))
    '0.333333333334'
    """
    short = up(value, _SHORT)
    if Fraction(short) == value:
        return short
    fraction = write_rational(value)
    return fraction if len(fraction) <= _SHORT else short


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
        **({"lower_bounds": bounds} if (bounds := lower_bounds(experiment)) else {}),
        **({"remarks": said} if (said := remarks(rows)) else {}),
        "versions": {name: version(name) for name in ("dpcore", "numpy")},
    }


def remarks(rows: Sequence[Row]) -> list[str]:
    r"""Sentences about rounds from which nothing was learned: too few of them, or too few users."""
    silent = {row.algorithm: row for row in rows if row.guarantee["pure"] == "0"}
    return [
        *(
            f"{name} used no reward, hence 0-DP: its first batch ends after round "
            f"{row.horizon:,}. Give a longer --horizon."
            for name, row in silent.items()
        ),
        *(_out_of_users(row) for row in rows if row.out_of_users),
    ]


def _out_of_users(row: Row) -> str:
    epsilon = up(Fraction(repr(row.epsilon)), _SHORT)
    return (
        f"{row.algorithm} at epsilon {epsilon} ran out of users: nothing was learned from "
        f"{row.out_of_users:,.0f} of {row.horizon:,} rounds. Give more --users or --visits."
    )


def lower_bounds(experiment: Experiment) -> list[dict[str, Any]]:
    r"""Of a hard instance what its theorem says of the regret at each epsilon; else nothing."""
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
            each = {"theorem": bound.theorem, "epsilon": float_up(rational("epsilon", epsilon))}
            per_round = bound.regret / experiment.horizon
            found.append({**each, "regret_per_round": per_round, "of": bound.of})
    return found


def write_json(found: dict[str, Any]) -> str:
    r"""The document as text; what is infinite or undefined is None in it, by construction.

    >>> write_json({"schema": SCHEMA}).splitlines()[1]
    '  "schema": "dpcore-bandit/1"'
    """
    return json.dumps(found, indent=2, allow_nan=False) + "\n"
