r"""Local reports in a random order: the server learns the reports, but not who sent which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.local.local_report import LocalReport, Reports
from dpcore.mechanism import Scope
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Of, Whole, check_fields
from dpcore.sampling.rng import SYSTEM, Rng, permutation


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledReports:
    r"""Reports drawn by ``report`` for ``users`` or more users, one each, in uniform random order.

    ``users`` counts those who follow the protocol, including the protected user: only their reports
    hide one another.

    >>> from dpcore import SeededRng
    >>> from dpcore.local import RandomisedResponse
    >>> votes = ShuffledReports(report=RandomisedResponse(epsilon=1, values=3), users=6)
    >>> votes.release([0, 0, 0, 1, 1, 2], rng=SeededRng(1)).tolist()
    [...]

    Raises :class:`InvalidParameter` for a mechanism that is not a :class:`LocalReport`, and users
    < 1.
    """

    report: Of[LocalReport] = Of(LocalReport, "must be a mechanism of dpcore.local")
    users: Whole = Whole(at_least=1, at_most=1 << 40)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scope(self) -> Scope:
        r"""The scope of a report."""
        return self.report.scope

    def to_json(self) -> dict[str, Any]:
        r"""The mechanism and the number of users as a JSON object."""
        return {"report": self.report.to_json(), "users": self.users}

    def release(self, value: Sequence[int] | Integers, *, rng: Rng = SYSTEM) -> Reports:
        r"""Draw the reports of all users' values and shuffle them; ``report.estimate`` reads them.

        Raises :class:`InvalidParameter` for fewer than ``users`` values, and the errors of
        :meth:`LocalReport.report`.
        """
        if np.size(value) < self.users:
            reason = f"must have the values of at least {self.users} users"
            raise InvalidParameter("value", value, reason)
        found = self.report.report(value, rng=rng)
        shuffled: Reports = found[permutation(len(found), rng)]
        return shuffled
