r"""Local reports: the common base class of the mechanisms, and reports in a random order.

A report supports the user's value with probability ``own`` and each other value with probability
``other``, for all values (the pure protocols of Wang, Blocki, Li and Jha 2017). ``own``, ``other``
and the largest likelihood ratio are exact rationals. Proofs: docs/proofs/local.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.local.estimated_counts import Frequencies, count_variance
from dpcore.mechanism import InScope, Scope
from dpcore.numbers.arrays import Integers, refuse_masked
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import (
    Exact,
    Of,
    Whole,
    check_fields,
    integer,
    rational,
)
from dpcore.sampling.rng import SYSTEM, Rng, permutation
from dpcore.spec_syntax import parameter_names

Reports: TypeAlias = npt.NDArray[Any]
Outcome: TypeAlias = int | tuple[int, ...]

_CELLS: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalReport(ABC):
    r"""A local mechanism: each user sends one epsilon-DP report on an integer in [0, ``values``).

    Probabilities are rounded so that the likelihood ratio of every report is proven to be at most
    e^epsilon.
    """

    name: ClassVar[str]

    epsilon: Exact = Exact(zero="at epsilon 0 a report carries no information")
    values: Whole = Whole(at_least=2, at_most=1 << 20)
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.own <= self.other:
            reason = f"is too small for {self.values} values: reports would carry no information"
            raise InvalidParameter("epsilon", self.epsilon, reason)

    @property
    @abstractmethod
    def own(self) -> Fraction:
        r"""The probability that a report supports the user's value."""

    @property
    @abstractmethod
    def other(self) -> Fraction:
        r"""The probability that a report supports any given other value."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        r"""The largest likelihood ratio of a report over all pairs of values; at most e^epsilon."""

    @property
    @abstractmethod
    def triple(self) -> Fraction:
        r"""The probability that a report supports the user's value and two particular other values.

        The mechanism fixes this pair of other values; other pairs may have another probability.
        ``values`` must be at least 3.
        """

    @property
    def loss(self) -> Enclosure:
        r"""The pure epsilon of one report: log ``ratio``.

        >>> from dpcore.local import RandomisedResponse
        >>> report = RandomisedResponse(epsilon=1, values=10)
        >>> 0.999999 < report.loss.lower_float <= report.loss.upper_float <= 1
        True
        """
        return narrow(lambda: ball(self.ratio).log(), 64)

    @property
    @abstractmethod
    def outcomes(self) -> int:
        r"""The number of possible reports."""

    def law(self, value: int) -> dict[Outcome, Fraction]:
        r"""The probability of each possible report of a user who has ``value``.

        Use this method for small cases only: the number of possible reports can be exponential.
        """
        return self._law(integer("value", value, at_least=0, at_most=self.values - 1))

    @abstractmethod
    def _law(self, value: int) -> dict[Outcome, Fraction]: ...

    @abstractmethod
    def _encode(self, values: Integers, rng: Rng) -> Reports: ...

    @abstractmethod
    def supports(self, reports: Reports) -> Integers:
        r"""The number of reports that support each value, as an array with one entry per value."""

    @property
    def width(self) -> int:
        r"""The number of integers or bits in one report."""
        return 1

    def report(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> Reports:
        r"""Draw an independent report (a number, or a row of numbers) for each user's value.

        Raises :class:`InvalidParameter`, before any draw, unless ``value`` is a nonempty array of
        integers from 0 to ``values`` - 1.
        """
        refuse_masked("value", value)
        given = np.asarray(value)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not len(given):
            raise InvalidParameter(
                "value", value, "must be a one-dimensional array of integers, one per user"
            )
        if not 0 <= int(given.min()) <= int(given.max()) < self.values:
            raise InvalidParameter(
                "value", value, f"must contain integers from 0 to {self.values - 1}"
            )
        step = max(1, _CELLS // self.width)
        parts = [
            self._encode(given[start : start + step].astype(np.int64), rng)
            for start in range(0, len(given), step)
        ]
        return np.concatenate(parts)

    def estimate(self, reports: Reports) -> Frequencies:
        r"""Estimate the counts of all values without bias, with proven confidence intervals.

        Raises :class:`InvalidParameter` unless ``reports`` is an array of this mechanism's reports.
        """
        refuse_masked("reports", reports)
        try:
            given = np.asarray(reports)
        except ValueError:  # rows of unequal length
            given = np.zeros(0)
        shape = (self.width,) if self.width > 1 else ()
        rows = given.ndim > 0 and len(given) > 0 and given.shape[1:] == shape
        if given.dtype.kind not in "biu" or not rows:
            each = f" of {self.width} numbers" if self.width > 1 else ""
            reason = f"must be a nonempty integer array, one report{each} per row"
            raise InvalidParameter("reports", reports, reason)
        least, most = self._range
        # 0 and 1, the values of Booleans, are in the range of every mechanism.
        if given.dtype.kind != "b" and (int(given.min()) < least or (given > most).any()):
            reason = "contains a number that this mechanism never reports"
            raise InvalidParameter("reports", reports, reason)
        return Frequencies(
            users=len(given), supports=self.supports(given), own=self.own, other=self.other
        )

    @property
    @abstractmethod
    def _range(self) -> tuple[int, Any]:
        r"""The smallest and the largest number in a report."""

    def variance(self, users: int, count: int | Fraction = 0) -> Fraction:
        r"""The exact variance of the estimated count of a value that ``count`` users have.

        >>> from dpcore.local import HadamardResponse
        >>> float(HadamardResponse(epsilon=1, values=100).variance(1000)) ** 0.5
        68.43...
        """
        n = integer("users", users, at_least=1)
        c = rational("count", count)
        if not 0 <= c <= n:
            raise InvalidParameter("count", count, f"must lie in [0, {n}], the number of users")
        return count_variance(self.own, self.other, n, c)

    @property
    def parameters(self) -> dict[str, Any]:
        r"""The parameters without the scope: ``values`` as an integer, all others as text."""
        given = {name: getattr(self, name) for name in parameter_names(type(self))}
        return {name: _plain(value) for name, value in given.items()}

    @property
    def text(self) -> str:
        r"""The mechanism as ``name:key=value``, without its scope.

        >>> from dpcore.local import LocalHashing
        >>> LocalHashing(epsilon="1/2", values=20).text
        'local-hashing:epsilon=1/2,values=20'
        """
        return f"{self.name}:{','.join(f'{key}={each}' for key, each in self.parameters.items())}"

    def to_json(self) -> dict[str, Any]:
        r"""The parameters, the probabilities ``own`` and ``other``, and the scope as a JSON object.

        Exact rationals are written as text.
        """
        return {
            "mechanism": self.name,
            **self.parameters,
            "own": str(self.own),
            "other": str(self.other),
            "scope": self.scope.to_json(),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Fraction) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledReports:
    r"""Reports of at least ``users`` users, drawn with ``report``, in a uniformly random order.

    ``users`` is the number of users who follow the protocol, including the protected user: only the
    reports of these users hide one another.

    >>> from dpcore import SeededRng
    >>> from dpcore.local import RandomisedResponse
    >>> votes = ShuffledReports(report=RandomisedResponse(epsilon=1, values=3), users=6)
    >>> votes.release([0, 0, 0, 1, 1, 2], rng=SeededRng(1)).tolist()
    [...]

    Raises :class:`InvalidParameter` if ``report`` is not a :class:`LocalReport`, or if ``users`` is
    not an integer from 1 to 2^40.
    """

    report: Of[LocalReport] = Of(LocalReport, "must be a mechanism of dpcore.local")
    users: Whole = Whole(at_least=1, at_most=1 << 40)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scope(self) -> Scope:
        return self.report.scope

    def to_json(self) -> dict[str, Any]:
        return {"report": self.report.to_json(), "users": self.users}

    def release(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> Reports:
        r"""Draw the reports of all users' values and shuffle them, for ``report.estimate``.

        Raises :class:`InvalidParameter` if there are fewer than ``users`` values, or if a value is
        not an integer in [0, ``report.values``).
        """
        if np.size(value) < self.users:
            reason = f"must contain the values of at least {self.users} users"
            raise InvalidParameter("value", value, reason)
        found = self.report.report(value, rng=rng)
        shuffled: Reports = found[permutation(len(found), rng)]
        return shuffled
