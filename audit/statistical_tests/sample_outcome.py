r"""The verdict of the sample layer: the outcome of each test, and the reported one."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import numpy as np

from audit.claims import CAUSES, Claim, LayerRun, VerdictWord, cause_of, log_bar
from audit.formats.result import Facts, fact, members
from audit.statistical_tests.coverage import Coverage, unmeasured_pairs
from audit.statistical_tests.event import Floats, Tally, Witness
from audit.statistical_tests.fixed_sample_test import resolution
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike

LARGEST_EXPONENT: Final = 700.0
r"""The largest exponent whose exponential is a finite float here."""

FIXED: Final = LayerRun(
    layer="sample",
    method="prequential guessing game",
    proves="if the claim holds and runs are independent, P(p-value <= alpha) <= alpha",
)
r"""The sample layer with a number of runs fixed beforehand (one test)."""

ANYTIME: Final = LayerRun(
    layer="sample",
    method="e-process of guesses",
    proves="if the claim holds and runs are independent, P(e-value ever >= 1/alpha) <= alpha",
)
r"""The sample layer with a test that may be evaluated after every run (one test)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Facts):
    r"""The test of one claimed point (``claim``) on one pair, through one feature.

    ``pair`` is the index of the pair in the audit's list, ``feature`` the name of the tested
    feature, None for the output itself. ``p_value`` or ``e_value`` is only that of this test;
    ``epsilon_lower`` is a lower bound at the delta of this point. All bounds of an audit hold
    together with its confidence. ``refuted`` says whether this point is refuted at the level of the
    whole audit.

    >>> Outcome(claim=Claim(epsilon=1), epsilon_lower=0.5, refuted=False, p_value=0.3).to_json()
    {'pair': 0, 'feature': None, 'epsilon': '1', 'delta': '0', 'p_value': 0.3, ...}
    """

    pair: int = fact("the index of the pair in the audit's list", default=0)
    feature: str | None = fact("the tested feature, null for the output itself", default=None)
    claim: Claim = fact("the claim as exact text", name="*", write=members("epsilon", "delta"))
    p_value: float | None = fact("the p-value of this test alone", default=None)
    e_value: float | None = fact("the e-value of this test alone", default=None)
    epsilon_lower: float = fact("a lower bound on epsilon at this delta")
    refuted: bool = fact("whether the claim is refuted at the level of the whole audit")


class Watched:
    r"""Sequential evidence: ``path[t-1]`` is the logarithm of the wealth after t runs."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def path(self) -> Floats:
            r"""The logarithms of the wealth, one per run."""

    @property
    def runs(self) -> int:
        return len(self.path)

    @property
    def log_e(self) -> float:
        r"""The logarithm of the largest wealth so far, at least 0 (the wealth starts at 1)."""
        return max(0.0, float(self.path.max(initial=0.0)))

    @property
    def e_value(self) -> float:
        r"""The largest wealth so far; if the claim holds, P(it ever reaches 1/alpha) <= alpha."""
        return math.exp(min(self.log_e, LARGEST_EXPONENT))

    def rejected_at(self, alpha: RationalLike = "0.05") -> int | None:
        r"""The number of runs at which the wealth first reached 1/alpha, or None."""
        crossed = np.flatnonzero(self.path >= log_bar(alpha))
        return int(crossed[0]) + 1 if len(crossed) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    r"""The combined evidence of the runs about a claim.

    ``outcomes`` has the outcome of every test, by view and then by claimed point. ``row`` is the
    index of the strongest evidence against the claim; ``witness`` and ``epsilon_lower`` belong to
    that test and its delta. ``resolution`` is over the views that measured anything, according to
    ``coverage``.
    """

    verdict: VerdictWord
    epsilon_lower: float
    witness: Witness | None
    layer: LayerRun
    p_value: float | None = None
    e_value: float | None = None
    resolution: float = math.inf
    outcomes: tuple[Outcome, ...] = ()
    row: int = 0
    coverage: tuple[Coverage, ...] = ()


def reported_row(outcomes: Sequence[Outcome], surest: int) -> int:
    r"""The index of the reported outcome. It is at the claimed point with the strongest evidence
    (``surest``) and has the same mark. Among such outcomes, the largest bound is reported; among
    refuted ones, values precede the representation of floats, and time comes last. All bounds hold
    together (``docs/proofs/audit_tests.md``).
    """
    causes = [*CAUSES]

    def rank(i: int) -> tuple[bool, int, float, bool]:
        row, best = outcomes[i], outcomes[surest]
        alike = row.claim == best.claim and row.refuted == best.refuted
        first = -causes.index(cause_of(row.feature)) if row.refuted else 0
        return alike, first, row.epsilon_lower, i == surest

    return max(range(len(outcomes)), key=rank)


def verdict_of(coverage: Sequence[Coverage], *, refuted: bool) -> VerdictWord:
    r"""The verdict of a sample layer; all views of a pair may have measured nothing."""
    if refuted:
        return "refuted"
    return "not_refuted" if coverage and not unmeasured_pairs(coverage) else "nothing_measured"


def resolution_of(
    tallies: Sequence[Tally],
    coverage: Sequence[Coverage],
    points: Sequence[Claim],
    shares: Sequence[Fraction],
) -> float:
    r"""The worst resolution over the views that measured anything and are not scores, each at its
    best point; infinite if there is no such view. ``shares`` has the level of one test of each
    view. Outputs that the feature did not read may reveal the dataset, so the resolution is at
    least their fraction.
    """
    found = [
        max(
            each.unread / max(each.runs, 1),
            min(
                resolution(tally.runs, epsilon, share, delta, crowd=tally.crowd, rare=tally.rare)
                for epsilon, delta in (point.exact for point in points)
            ),
        )
        for tally, each, share in zip(tallies, coverage, shares, strict=True)
        if each.measured and not each.partial
    ]
    return max(found, default=math.inf)


def capped(epsilon_lower: float, claim: Claim, *, refuted: bool) -> float:
    r"""The bound, no larger than a claim that is not refuted.

    A claim between two rejected grid points may barely pass its own test; the smaller bound is also
    valid, and does not contradict the verdict.
    """
    return epsilon_lower if refuted else min(epsilon_lower, round_down(claim.exact[0]))


def versions() -> dict[str, str]:
    r"""The versions of this toolkit, Python and numpy."""
    try:
        own = version("dpcore")
    except PackageNotFoundError:  # the source tree is not installed
        own = "unknown"
    return {"dpcore": own, "python": platform.python_version(), "numpy": np.__version__}
