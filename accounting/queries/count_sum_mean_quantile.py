r"""Queries on a table: immutable objects whose sensitivity follows from the scope of the table.

A query encodes a table as integers and knows their sensitivity to one user (``moves``). It defines
the mechanism that releases the integers for a target guarantee, and computes the answer from the
released value. The caller never states a sensitivity. With at most R rows per user and the relation
add-remove or replace, one user changes

- a count by R; a histogram by R in l1 (2R under replace) and R^2 (2R^2) in l2 squared;
- a sum of whole steps in [a, b] by R max(|a|, |b|), under replace by R (max(b, 0) - min(a, 0));
- the pair (sum of x - c, h n) of a mean, for n values x in [c - h, c + h]: by R h in each component
  under add-remove; by 2R h in l1 and 4 R^2 h^2 in l2 squared under replace;
- the score of a quantile q = p/s by R max(p, s - p), under replace by R s; the score of a key in a
  top k by R.

Proofs: docs/proofs/selection.md; tests compare each sensitivity with all small tables.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from accounting.errors import NotDerived
from accounting.guarantees.renyi_and_zcdp_to_epsilon import rho_within
from accounting.law_pairs.registry import heaviest
from accounting.queries.table_with_rows_per_user import Table, TableScope
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Relation, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import round_up
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    Whole,
    check_fields,
    positive_rational,
    rational_in,
    text,
)
from dpcore.numbers.rounding import down, exactly
from dpcore.sampling.rng import Rng
from dpcore.selection import NoisyThreshold, Rule, Selection

if TYPE_CHECKING:
    from accounting.ledger.charge_request import Releasable

_MOST_STEPS: Final = 1 << 32
_LEAST_STEP: Final = Fraction(1, 10**250)
r"""Within this limit floats represent all steps and bounds, and products of errors and steps."""
_MOST_GRID: Final = 1 << 22
_MOST_DENOMINATOR: Final = 1 << 16
_FINE: Final = 64
r"""The factors of scores are rounded with a relative error below 1/64."""
_ROOT: Final = 1 << 40

Interval: TypeAlias = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    r"""The target guarantee of a release: ``epsilon``, ``rho``, or ``epsilon`` and ``delta``.

    >>> Target(epsilon="1/2").text
    'epsilon=1/2'

    Raises :class:`InvalidParameter` unless exactly one of epsilon and rho is given and is positive,
    and delta is in [0, 1).
    """

    epsilon: RationalLike | None = None
    rho: RationalLike | None = None
    delta: RationalLike = 0

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise InvalidParameter("epsilon", ABSENT, "give either epsilon or rho")
        for name in ("epsilon", "rho"):
            if (value := getattr(self, name)) is not None:
                exact = positive_rational(name, value, "a guarantee of 0 needs infinite noise")
                object.__setattr__(self, name, exact)
        object.__setattr__(self, "delta", rational_in("delta", self.delta, "[0, 1)"))

    @property
    def text(self) -> str:
        r"""The target as text, e.g. ``epsilon=1,delta=1/1000``."""
        given = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta or None}
        return ",".join(f"{name}={value}" for name, value in given.items() if value is not None)

    def without_delta(self, query: str) -> None:
        r"""Raise :class:`InvalidParameter` if a delta is given, since ``query`` does not use it."""
        if self.delta:
            must = f"must not be given: {query} does not use delta"
            raise InvalidParameter("delta", self.delta, must)


class Moves(NamedTuple):
    r"""The sensitivity of a query to one user, in l1 for Laplace noise and in l2 for Gaussian."""

    laplace: Sensitivity
    gaussian: Sensitivity


class Answer(NamedTuple):
    r"""An answer with its value, standard error and confidence interval.

    ``value`` is a number, a list of keys, or a mapping from text to numbers. ``standard_error`` or
    ``interval`` is None if it would depend on unreleased data. ``note`` states the errors that the
    interval does not cover, except that some rows may not be counted.
    """

    value: Any
    standard_error: float | None
    interval: Any
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(ABC):
    r"""A query on a table. See the module's documentation for the sensitivities."""

    name: ClassVar[str]
    needs: ClassVar[str] = ""

    @property
    def columns(self) -> tuple[str, ...]:
        r"""The columns that the query reads, except the column of users."""
        column = getattr(self, "column", None)
        return () if column is None else (column,)

    @abstractmethod
    def encode(self, table: Table, scope: TableScope, rng: Rng) -> Any:
        r"""Encode the table as integers; ``rng`` draws the key for the choice of counted rows."""

    @abstractmethod
    def mechanism(self, scope: TableScope, target: Target) -> Releasable:
        r"""The mechanism that releases the encoded integers and satisfies ``target``."""

    @abstractmethod
    def answer(self, drawn: Any, mechanism: Any, confidence: Fraction) -> Answer:
        r"""Compute the answer from the released integers ``drawn``, without access to the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Additive(Query):
    r"""A query that is released with additive noise."""

    @abstractmethod
    def moves(self, scope: TableScope) -> Moves:
        r"""The sensitivity of the encoded integers to one user."""

    def mechanism(self, scope: TableScope, target: Target) -> Releasable:
        return noisy(self.moves(scope), scope, target)

    unit: ClassVar[Any] = Fraction(1)

    def answer(self, drawn: Any, mechanism: Mechanism, confidence: Fraction) -> Answer:
        error, reach = spread(mechanism.noise, confidence)
        unit = Fraction(self.unit)
        value = drawn * unit
        ends = (value - reach * unit, value + reach * unit)
        return Answer(value, scaled(error, unit), ends, self.needs)


def noisy(moves: Moves, scope: TableScope, target: Target) -> Mechanism:
    r"""The mechanism with additive noise that satisfies ``target`` for the sensitivity ``moves``.

    The noise is discrete Laplace for pure DP, and discrete Gaussian for zCDP. For an epsilon with a
    delta it is whichever of the two has the smaller variance.
    """
    squared = sum(step**2 * count for step, count in heaviest(moves.gaussian))
    if target.rho is not None:
        target.without_delta("a zCDP release")
        noise = DiscreteGaussian(sigma_squared=squared / (2 * Fraction(target.rho)))
        return Mechanism(noise=noise, sensitivity=moves.gaussian, scope=scope.scope)
    amount = sum(step * count for step, count in heaviest(moves.laplace))
    pure = DiscreteLaplace(scale=amount / Fraction(target.epsilon or 0))
    if target.delta:
        calibrated = _calibrated(moves.gaussian, squared, target)
        if calibrated.sigma_squared < 2 * pure.scale**2:
            return Mechanism(noise=calibrated, sensitivity=moves.gaussian, scope=scope.scope)
    return Mechanism(noise=pure, sensitivity=moves.laplace, scope=scope.scope)


def _calibrated(moves: Sensitivity, squared: int, target: Target) -> DiscreteGaussian:
    from accounting.calibration.calibrate_noise_rounds_or_rate import (
        calibrate,  # here: a pure target does not need it
    )

    epsilon, delta = Fraction(target.epsilon or 0), Fraction(target.delta)
    try:
        found = calibrate(
            noise="discrete-gaussian", epsilon=epsilon, delta=delta, sensitivity=moves
        ).noise
        if isinstance(found, DiscreteGaussian):
            return found
    except NotDerived:
        pass  # there are too many shifts for an exact curve: zCDP holds for all of them
    rho = rho_within(epsilon, delta)
    if not rho:
        raise NotDerived(f"Gaussian noise for {target.text}", "allow a larger epsilon or delta")
    return DiscreteGaussian(sigma_squared=squared / (2 * rho))


def spread(noise: Noise, confidence: Fraction) -> tuple[float, int]:
    r"""The standard error of noise X, rounded up, and a t such that P(|X| <= t) >= confidence."""
    variance = noise.variance
    exact = variance if isinstance(variance, Fraction) else Fraction(variance.upper)
    reach = noise.quantile(1 - (1 - confidence) / 2)
    return math.nextafter(math.sqrt(round_up(exact)), math.inf), int(reach)


def scaled(error: float, unit: Fraction) -> float:
    r"""The standard error ``error`` times ``unit``, rounded up."""
    return error if unit == 1 else math.nextafter(error * round_up(unit), math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Additive):
    r"""The number of rows, at most ``rows_per_user`` per user."""

    name: ClassVar[str] = "count"

    def moves(self, scope: TableScope) -> Moves:
        moved = Sensitivity(scope.rows_per_user)
        return Moves(moved, moved)

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> int:
        del rng  # the number of counted rows does not depend on their choice
        return table.count(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped(Query):
    r"""A query on a column of numbers, clipped to [low, high] and rounded to multiples of ``step``.

    The bounds are public: choose them without looking at the data.
    """

    column: str
    low: Exact = Exact()
    high: Exact = Exact()
    step: Exact = Exact(1, zero="numbers are rounded to multiples of it")

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.low < self.high:
            raise InvalidParameter("clip", f"{self.low} {self.high}", "LOW must be below HIGH")
        for end in (self.low, self.high):
            if (end / self.step).denominator != 1:
                reason = f"must divide both bounds of the range; {end} is not a multiple of it"
                raise InvalidParameter("step", self.step, reason)
            if not _LEAST_STEP <= self.step <= max(self.step, abs(end)) <= 1 / _LEAST_STEP:
                reason = "must be at least 1e-250, and the bounds of the range at most 1e250"
                raise InvalidParameter("step", self.step, reason)
            if abs(end / self.step) > _MOST_STEPS:
                reason = f"is too fine: the bound {end} must be at most 2^32 steps"
                raise InvalidParameter("step", self.step, reason)

    @property
    def ends(self) -> tuple[int, int]:
        r"""The bounds of the range, in steps."""
        return int(self.low / self.step), int(self.high / self.step)

    @property
    def unit(self) -> Fraction:
        r"""The length of one step."""
        return self.step

    def steps(self, table: Table, scope: TableScope, rng: Rng) -> Iterator[Integers]:
        r"""Arrays with the values of the counted rows in steps, each for all rows of some users."""
        return table.steps(scope, self.column, self.ends, self.step, rng)


_CLIPPED: Final = "computed from the numbers after clipping and rounding to steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(Clipped, Additive):
    r"""The sum of a column, each value clipped and rounded to a multiple of ``step``.

    >>> amounts = Sum(column="amount", low=0, high=200, step="0.01")
    >>> amounts.moves(TableScope(user="user", rows_per_user=3)).laplace
    Sensitivity(60000)
    """

    name: ClassVar[str] = "sum"
    needs: ClassVar[str] = _CLIPPED

    def moves(self, scope: TableScope) -> Moves:
        low, high = self.ends
        if scope.relation is Relation.REPLACE:
            most = max(high, 0) - min(low, 0)
        else:
            most = max(abs(low), abs(high))
        moved = Sensitivity(scope.rows_per_user * most)
        return Moves(moved, moved)

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> int:
        return sum(int(part.sum()) for part in self.steps(table, scope, rng))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(Clipped, Additive):
    r"""The mean of a column, from a noisy sum around the centre and a noisy count in one release.

    Let c be the centre of the range and h its half width. For the n values x of the counted rows,
    the release is the pair (sum of x - c, h n), in steps. The factor h gives both components the
    same sensitivity. The choice of the counted rows affects the mean.
    """

    name: ClassVar[str] = "mean"
    needs: ClassVar[str] = _CLIPPED

    @property
    def centre(self) -> tuple[int, int]:
        r"""The centre of the range, rounded down, and the half width, rounded up, in steps."""
        low, high = self.ends
        centre = (low + high) // 2
        return centre, high - centre

    def moves(self, scope: TableScope) -> Moves:
        _, half = self.centre
        most = scope.rows_per_user * half
        if scope.relation is Relation.REPLACE:
            return Moves(Sensitivity.l1(2 * most), Sensitivity.l2_squared(4 * most**2))
        box = Sensitivity.box((most, most))
        return Moves(box, box)

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> Any:
        centre, half = self.centre
        total = number = 0
        for part in self.steps(table, scope, rng):
            total, number = total + int((part - centre).sum()), number + len(part)
        return np.array([total, half * number], dtype=np.int64)

    def answer(self, drawn: Any, mechanism: Mechanism, confidence: Fraction) -> Answer:
        centre, half = self.centre
        low, high = self.ends
        # Each component is outside its interval with probability at most (1 - confidence) / 2.
        error, reach = spread(mechanism.noise, 1 - (1 - confidence) / 2)
        total, count = (int(each) for each in drawn)

        def at(top: int, below: int) -> Fraction:
            return min(max(Fraction(top * half, below) + centre, Fraction(low)), Fraction(high))

        if count <= 0:
            return Answer(centre * self.unit, None, (self.low, self.high), self.needs)
        value, interval = at(total, count), (Fraction(low), Fraction(high))
        if count > reach:
            corners = [at(total + s * reach, count + t * reach) for s in (-1, 1) for t in (-1, 1)]
            interval = min(corners), max(corners)
        slope = float((value - centre) / half)
        near = error * half / count * math.sqrt(1 + slope**2) * float(self.unit)
        ends = (interval[0] * self.unit, interval[1] * self.unit)
        return Answer(value * self.unit, near, ends, self.needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Additive):
    r"""The number of rows per key, for given ``keys`` or for keys found by a noisy threshold.

    Rows with other keys, or without a key, are ignored. If keys are given, the answer contains a
    number for each of them, in the given order, even if no row has the key. Without ``keys``, a
    key is released if its noisy count reaches a threshold, which requires a delta.
    """

    name: ClassVar[str] = "histogram"

    column: str
    keys: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.keys is None:
            return
        if isinstance(self.keys, str) or not isinstance(self.keys, Iterable):
            raise InvalidParameter("keys", self.keys, "must be a non-empty sequence of strings")
        keys = tuple(map(_key, self.keys))
        if not keys:
            raise InvalidParameter("keys", self.keys, "must be a non-empty sequence of strings")
        twice = next((key for key, times in Counter(keys).items() if times > 1), None)
        if twice is not None:
            raise InvalidParameter("keys", twice, "appears twice")
        object.__setattr__(self, "keys", keys)

    def moves(self, scope: TableScope) -> Moves:
        rows = scope.rows_per_user
        if scope.relation is Relation.REPLACE:
            return Moves(Sensitivity.l1(2 * rows), Sensitivity.l2_squared(2 * rows**2))
        return Moves(Sensitivity.l1(rows), Sensitivity.l1(rows))

    def mechanism(self, scope: TableScope, target: Target) -> Releasable:
        if self.keys is not None:
            return noisy(self.moves(scope), scope, target)
        from accounting.composition.partition_selection_guarantee import least_threshold

        if not target.delta:
            reason = "must be given and > 0 for unknown keys: the key of one user may be released"
            raise InvalidParameter("delta", target.delta, reason)
        free = Target(epsilon=target.epsilon, rho=target.rho)
        added, rows = noisy(self.moves(scope), scope, free), scope.rows_per_user
        # Too many rows are refused here: the search for the threshold takes quadratic time.
        planned = NoisyThreshold(mechanism=added, threshold=1, rows_per_user=rows)
        return replace(planned, threshold=least_threshold(added.noise, target.delta, rows))

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> Any:
        if self.keys is not None:
            table.require_keys(self.column, self.keys)
        found = table.keys(scope, self.column, rng)
        if self.keys is None:
            return found
        return np.array([found.get(key, 0) for key in self.keys], dtype=np.int64)

    def answer(self, drawn: Any, mechanism: Any, confidence: Fraction) -> Answer:
        noise = (mechanism.mechanism if self.keys is None else mechanism).noise
        error, reach = spread(noise, confidence)
        if self.keys is not None:
            value, note = dict(zip(self.keys, map(int, drawn), strict=True)), ""
        else:
            value, note = drawn, f"keys with noisy counts below {mechanism.threshold} are omitted"
        return Answer(value, error, {k: (n - reach, n + reach) for k, n in value.items()}, note)


def _key(value: object) -> str:
    # Truth values and times have several spellings: a key of another spelling would count no row.
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int | np.integer) and not isinstance(value, bool | Enum):
        return str(int(value))
    return text(
        "keys", value, 'must be text, as in the table (such as "true"), an integer or a date'
    )


def _chosen(
    scope: TableScope, target: Target, moved: int, count: int = 1, *, monotonic: bool = False
) -> Selection:
    target.without_delta("a choice by scores")
    if target.epsilon is not None:
        epsilon, rule = Fraction(target.epsilon), Rule.PERMUTE_AND_FLIP
    else:
        # epsilon^2/(8 count) <= rho, with the root rounded down.
        squared = 8 * count * Fraction(target.rho or 0)
        epsilon = Fraction(math.isqrt(math.floor(squared * _ROOT**2)), _ROOT)
        rule = Rule.EXPONENTIAL
    given: Any = {"count": count, "rule": rule, "monotonic": monotonic}
    return Selection(epsilon=epsilon, sensitivity=moved, scope=scope.scope, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile(Clipped):
    r"""Multiples of ``step`` in [low, high] near one or several quantiles ``q`` of the values.

    For the n values x and q = p/s, the score of a candidate r is

        -max(0, s #{x < r} - p n, p n - s #{x <= r}).

    If ``q`` is a tuple, the quantiles are chosen independently, each with an equal share of the
    target, and released in increasing order.
    """

    name: ClassVar[str] = "quantile"

    q: RationalLike | tuple[RationalLike, ...] = Fraction(1, 2)

    def __post_init__(self) -> None:
        Clipped.__post_init__(self)
        given = self.q if isinstance(self.q, tuple) else (self.q,)
        exact = tuple(rational_in("q", each, "[0, 1]") for each in given)
        if not exact or any(not one < other for one, other in pairwise(exact)):
            written = ", ".join(map(str, given)) or "()"
            raise InvalidParameter("q", written, "must be one or more numbers in increasing order")
        for each in exact:
            if each.denominator > _MOST_DENOMINATOR:
                must = f"must have a denominator of at most {_MOST_DENOMINATOR}"
                raise InvalidParameter("q", each, must)
        object.__setattr__(self, "q", exact if len(exact) > 1 else exact[0])
        low, high = self.ends
        if (high - low + 1) * len(exact) > _MOST_GRID:
            reason = "is too small: more steps than the limit of 2^22, in total for all quantiles"
            raise InvalidParameter("step", self.step, reason)

    @property
    def all(self) -> tuple[Fraction, ...]:
        r"""The quantiles as a tuple."""
        found: Any = self.q if isinstance(self.q, tuple) else (self.q,)
        return tuple(found)

    def factors(self, relation: Relation) -> tuple[tuple[int, ...], int]:
        r"""A factor for each quantile, and the largest sensitivity of the scaled scores.

        The factors make the sensitivities of all scores to one row about equal.
        """
        replaced = relation is Relation.REPLACE
        moves = [
            s if replaced else max(p, s - p) for p, s in map(Fraction.as_integer_ratio, self.all)
        ]
        most = max(moves) * (_FINE if len(moves) > 1 else 1)
        factors = tuple(most // each for each in moves)
        largest = max(f * each for f, each in zip(factors, moves, strict=True))
        return factors, largest

    def mechanism(self, scope: TableScope, target: Target) -> Releasable:
        moved = scope.rows_per_user * self.factors(scope.relation)[1]
        return _chosen(scope, target, moved, len(self.all))

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> Any:
        low, high = self.ends
        counts = np.zeros(high - low + 1, dtype=np.int64)
        for part in self.steps(table, scope, rng):
            counts += np.bincount(part - low, minlength=len(counts))
        upto = np.cumsum(counts)
        rows = []
        for q, factor in zip(self.all, self.factors(scope.relation)[0], strict=True):
            p, s, n = q.numerator, q.denominator, upto[-1]
            missed = np.maximum(s * (upto - counts) - p * n, p * n - s * upto)
            rows.append(-factor * np.maximum(0, missed))
        return np.array(rows) if len(rows) > 1 else rows[0]

    def answer(self, drawn: Any, mechanism: Selection, confidence: Fraction) -> Answer:
        low, high = self.ends
        # The gap is the best score minus the chosen score, among m candidates. P(gap >= t) <= m
        # e^(-unit t), for permute-and-flip and for the exponential mechanism, and the probabilities
        # of all quantiles add.
        m, miss = (high - low + 1) * len(self.all), 1 - confidence
        log = math.log(m) + math.log(miss.denominator) - math.log(miss.numerator)
        # A rank is s units of the score of q = p/s, times its factor.
        factors, _ = self.factors(mechanism.scope.relation)
        rank = min(f * q.denominator for f, q in zip(factors, self.all, strict=True))
        ranks = math.ceil(Fraction(log) / mechanism.unit / rank)
        chance = down(confidence * 100, 6)
        each = "each quantile" if len(self.all) > 1 else "the quantile"
        note = f"{_CLIPPED}; within {ranks} ranks of {each} in {chance}% of releases"
        values = [(low + int(place)) * self.step for place in sorted(np.atleast_1d(drawn))]
        if len(values) == 1:
            return Answer(values[0], None, None, note)
        names = [exactly(q) for q in self.all]
        return Answer(dict(zip(names, values, strict=True)), None, dict.fromkeys(names), note)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Query):
    r"""The ``count`` most frequent of the given ``keys``, in order, without their counts."""

    name: ClassVar[str] = "top"

    column: str
    keys: tuple[str, ...]
    count: Whole = Whole(1)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "keys", Histogram(column=self.column, keys=self.keys).keys)
        if self.count > len(self.keys):
            must = f"must be at most {len(self.keys)}, the number of keys"
            raise InvalidParameter("count", self.count, must)

    def mechanism(self, scope: TableScope, target: Target) -> Releasable:
        # A user who is added or removed changes no two counts in opposite directions.
        monotonic = scope.relation is Relation.ADD_REMOVE
        return _chosen(scope, target, scope.rows_per_user, self.count, monotonic=monotonic)

    def encode(self, table: Table, scope: TableScope, rng: Rng) -> Any:
        return Histogram(column=self.column, keys=self.keys).encode(table, scope, rng)

    def answer(self, drawn: Any, mechanism: Selection, confidence: Fraction) -> Answer:
        del mechanism, confidence
        chosen = [drawn] if self.count == 1 else drawn
        return Answer([self.keys[int(at)] for at in chosen], None, None)
