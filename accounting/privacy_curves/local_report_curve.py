r"""The privacy curve of one local report, such as randomised response.

For any two values of a user, the likelihood ratio of the reports of a mechanism in
:mod:`dpcore.local` is always r, 1 or 1/r. So the pair of the laws of the reports is determined by r
and the total variation distance t = P(ratio = r) - P(ratio = 1/r). In terms of the mechanism's
attributes, t is ``own`` - ``other``. Proofs: docs/proofs/local.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Final, Self

from accounting.descriptions.description import LOCAL_REPORT
from accounting.law_pairs.registry import Coordinates
from accounting.pairs.finite import FinitePair, Listed
from accounting.privacy_curves.dominating_pairs import DominatingPairs
from accounting.privacy_curves.release_curve import PairCurve
from dpcore.errors import InvalidParameter
from dpcore.local import LocalReport
from dpcore.mechanism import InScope, Relation, Scope
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import Exact, check_fields, write_rational
from dpcore.numbers.rounding import up

_DIGITS: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPair(FinitePair):
    r"""The pair with losses +-log ``ratio`` and 0, and total variation distance ``distance``."""

    ratio: Fraction
    distance: Fraction

    def listed(self) -> Listed:
        least = self.distance / (self.ratio - 1)
        most, loss = least * self.ratio, ball(self.ratio).log()
        low, high, rest = ball(least), ball(most), ball(1 - least - most)
        same: Listed = ((Fraction(0), rest, rest),) if least + most < 1 else ()
        return ((-loss, low, high), *same, (loss, high, low))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReportCurve(PairCurve):
    r"""The exact privacy curve of one local report.

    The likelihood ratios of the reports of two values are ``ratio`` > 1, 1 and 1/``ratio``.
    ``distance`` is the total variation distance between these reports. It is positive and at most
    (ratio - 1)/(ratio + 1), its value for binary randomised response. ``report`` is the mechanism
    as text, if it is known.

    >>> from dpcore.local import SubsetSelection
    >>> curve = ReportCurve.of(SubsetSelection(epsilon=1, values=100))
    >>> curve.delta(0), curve.delta(1)
    (Bound([0.233..., 0.233...], 'exact'), Bound([0, 0], 'exact'))

    Raises :class:`InvalidParameter` if a number is out of range, or for the relation add-remove.
    """

    theorem: ClassVar[str] = "the likelihood ratios of a report"

    ratio: Exact = Exact()
    distance: Exact = Exact(zero="reports at distance 0 carry no information")
    scope: InScope = InScope()
    report: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ratio <= 1:
            raise InvalidParameter("ratio", self.ratio, "must be > 1")
        if self.distance * (self.ratio + 1) > self.ratio - 1:
            must = f"must be at most (ratio - 1)/(ratio + 1) for ratio = {self.ratio}"
            raise InvalidParameter("distance", self.distance, must)
        if self.scope.relation is not Relation.REPLACE:
            must = "must have the relation 'replace': a report reveals that its user takes part"
            raise InvalidParameter("scope", self.scope, must)

    @classmethod
    def of(cls, mechanism: LocalReport) -> Self:
        r"""The curve of one report of ``mechanism``; neighbours differ in the value of one user."""
        distance = mechanism.own - mechanism.other
        return cls(
            ratio=mechanism.ratio, distance=distance, scope=mechanism.scope, report=mechanism.text
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        r"""The curve described by the output of :meth:`to_json`."""
        scope = Scope.from_json(data["scope"])
        return cls(ratio=data["ratio"], distance=data["distance"], scope=scope)

    def to_json(self) -> dict[str, Any]:
        ends = {"ratio": write_rational(self.ratio), "distance": write_rational(self.distance)}
        return {"claim": LOCAL_REPORT, **ends, "scope": self.scope.to_json()}

    def products(self) -> tuple[Coordinates, ...]:
        return (((ReportPair(ratio=self.ratio, distance=self.distance), 1),),)

    def dominating_pairs(self) -> DominatingPairs:
        return DominatingPairs.exactly(*self.products())

    @property
    def text(self) -> str:
        r"""The mechanism in the syntax of the command line, or the epsilon of the report."""
        return self.report or f"a local report with epsilon {up(self.pure().upper, _DIGITS)}"

    @property
    def description(self) -> None:
        return
