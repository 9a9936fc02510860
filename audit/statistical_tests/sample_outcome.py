r"""The verdict of a statistical audit: the outcome of each test, and whether it measured anything.

A *view* is one feature, evaluated on the runs of one pair of datasets. A test can only distinguish
the datasets if the values are numbers, which have an order, or are repeated. If all values are
equal, or all are distinct and unordered, the test has no power, and passing it means nothing.

Therefore verdicts, exit codes and assertions follow these rules. A view misses a run if its value
occurred only once and has no order, or if the feature could not read the output. A view measures
nothing if it misses more than half of its runs, or if there are too few runs to refute the claim
even if each run reveals its dataset. If the claim is not refuted, and for some pair no view
measured anything, the verdict is "nothing_measured" (:func:`unmeasured_pairs`).
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import numpy as np

from audit.claims import Claim, LayerRun, log_bar
from audit.features.built_in_features import is_unread
from audit.formats.result import Facts, fact, members
from audit.outputs.output_parser import UNREAD
from audit.statistical_tests.event import Floats, Tally, Witness
from audit.statistical_tests.prequential_fixed_runs_test import resolution
from audit.verdict_words_and_exit_codes import CAUSES, VerdictWord, cause_of
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike

_RARE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    r"""How many runs one view could measure (a view is one feature on the runs of one pair).

    - ``runs``: the number of runs;
    - ``looked_at``: the number of runs that could help to choose an event
      (:class:`audit.statistical_tests.event.Tally`);
    - ``once``: the number of runs whose output occurred only once and has no order;
    - ``unread``: the number of other runs whose output the feature could not read;
    - ``constant``: whether all outputs are equal;
    - ``measured``: whether the view measured anything (see the module docstring);
    - ``learned``: whether the feature is a learned score.
    """

    runs: int
    looked_at: int
    once: int
    constant: bool
    measured: bool
    pair: int = 0
    feature: str | None = None
    learned: bool = False
    unread: int = 0

    @classmethod
    def of(
        cls,
        tally: Tally,
        level: Fraction,
        points: Sequence[Claim],
        *,
        pair: int = 0,
        feature: str | None = None,
        learned: bool = False,
        allow_constant: bool = False,
    ) -> Coverage:
        r"""The coverage of one view (a feature on the runs of one pair), from the counts of its
        outputs.

        ``measured`` is true if the view misses at most half of its runs, and the ``looked_at`` runs
        are enough to refute one of ``points`` at ``level`` if each of them reveals its dataset.
        With ``allow_constant``, all runs count as looked at if the output is constant.
        """
        found = cls(
            runs=tally.runs,
            looked_at=tally.looked_at,
            once=tally.once,
            constant=tally.constant,
            measured=False,
            pair=pair,
            feature=feature,
            learned=learned,
            unread=_unread(tally, feature),
        )
        meant = allow_constant and found.constant and not learned
        used = tally.runs if meant else tally.looked_at
        enough = any(
            math.isfinite(resolution(used, epsilon, level, delta))
            for epsilon, delta in (point.exact for point in points)
        )
        return replace(found, measured=enough and not found.blind)

    @property
    def partial(self) -> bool:
        r"""Whether the feature is a score, a column or the structure, and not the whole output."""
        return self.learned or (self.feature or "").startswith(("column:", "structure"))

    @property
    def missed(self) -> int:
        return self.once + self.unread

    @property
    def blind(self) -> bool:
        return 2 * self.missed > self.runs

    @property
    def in_part(self) -> bool:
        r"""Whether the view measured something, but missed more than 1% of its runs."""
        return self.measured and self.missed * _RARE > self.runs

    @property
    def reason(self) -> str:
        if self.learned and self.constant:
            return (
                "no learned score differs from run to run: the outputs have no numbers and no "
                "repeated labels"
            )
        if self.blind:
            return (
                f"{self._missed}, so no event could be learned from them; test a part of each "
                "output with --feature (features in Python): file.py:callable for your own "
                "function, or coordinate:0, sum or round:1 for numbers and vectors"
            )
        if self.constant:
            return (
                "every output was the same; --allow-constant (allow_constant=True in Python) "
                "accepts that if it is intended and the runs could refute the claim"
            )
        if not self.runs:
            return "no run was drawn"
        few = f"{self.runs:,} runs are too few to refute the claim reliably, for any outputs"
        return f"{few}; draw more with -n (runs in Python)"

    @property
    def _missed(self) -> str:
        counts = {
            "occurred once and have no order": self.once,
            f"could not be read by {self.feature}": self.unread,
        }
        of = f"of {self.runs:,} outputs"
        return " and ".join(f"{many:,} {of} {words}" for words, many in counts.items() if many)


def _unread(tally: Tally, feature: str | None) -> int:
    # The number of runs with a label which states that the feature does not apply. Labels that
    # occurred only once are left out, because ``once`` counts them.
    if feature is None:
        return 0
    counts = tally.label_counts.sum(axis=0).tolist()
    labels = zip(tally.labels, counts, strict=True)
    return sum(count for label, count in labels if count > 1 and is_unread(str(label), feature))


def unmeasured_pairs(coverage: Sequence[Coverage]) -> list[Coverage]:
    r"""For each pair on which no feature measured anything, the coverage of its first feature."""
    known = {each.pair for each in coverage if each.measured}
    first: dict[int, Coverage] = {}
    for each in coverage:
        if each.pair not in known:
            first.setdefault(each.pair, each)
    return list(first.values())


def unmeasured(coverage: Sequence[Coverage], *, several: bool) -> list[str]:
    r"""Sentences for the report about features that measured nothing, or missed over 1% of runs.

    On a pair where a feature that reads only a part of each output (:attr:`Coverage.partial`)
    measured something, only such features are mentioned, if they measured something and missed over
    1% of runs.
    """
    found = []
    parts = {each.pair for each in coverage if each.partial and each.measured}
    for each in coverage:
        if each.pair in parts and not (each.partial and each.in_part):
            continue
        where = f"pair {each.pair + 1}: " if several else ""
        where += f"{each.feature}: " if each.feature is not None else ""
        if not each.measured:
            found.append(f"{where}nothing was measured: {each.reason}")
        elif each.in_part:
            found.append(
                f"{where}{each._missed}: they were not measured; test a part of them with --feature"
            )
    return found


def unresolved(coverage: Sequence[Coverage], warnings: Sequence[str] = ()) -> str | None:
    r"""Explain why the report has no resolution, although some features measured something.

    The resolution is the least probability at which the audit would detect an output that occurs
    under only one dataset. There is no resolution if parts of the outputs were not read, if learned
    scores or columns were tested, or if outputs are rarely repeated, because such an output can
    then be missed. Returns None if no feature measured anything.
    """
    measured = [each for each in coverage if each.measured]
    if measured and any(UNREAD in warning for warning in warnings):
        return "parts of the outputs contain no plain data, and were not read (see the warning)"
    if not measured:
        return None
    if any(each.partial for each in measured):
        return (
            "outputs are rarely repeated: learned scores or columns of them were tested, which may "
            "miss an output that occurs under only one dataset"
        )
    return (
        "outputs are rarely repeated: rare outputs that occur under only one dataset may have been "
        "missed"
    )


def unseen(coverage: Sequence[Coverage]) -> str:
    r"""Describe what the resolution (:func:`resolution_of`) does not cover; "" if nothing."""
    views = [each for each in coverage if not each.learned]
    kept = [each for each in views if each.measured]
    missing = len(views) - len(kept)
    once = sum(each.once for each in kept if each.in_part)
    unread = sum(each.unread for each in kept if each.in_part)
    counts = {
        f"for {missing:,} of {len(views):,} combinations of pair and feature": missing,
        f"for {once:,} outputs that occurred only once": once,
        f"for {unread:,} outputs that a feature could not read": unread,
    }
    parts = [words for words, count in counts.items() if count]
    return f" (nothing was measured {' and '.join(parts)})" if parts else ""


LARGEST_EXPONENT: Final = 700.0
r"""The largest exponent in use; its exponential is a finite float."""

FIXED: Final = LayerRun(
    layer="sample",
    method="prequential guessing game",
    proves="if the claim holds and runs are independent, P(p-value <= alpha) <= alpha",
)
r"""The sample layer's description for one test with a number of runs fixed beforehand."""

ANYTIME: Final = LayerRun(
    layer="sample",
    method="e-process of guesses",
    proves="if the claim holds and runs are independent, P(e-value ever >= 1/alpha) <= alpha",
)
r"""The sample layer's description for one test that may be evaluated after every run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Facts):
    r"""The result of testing one claimed point (``claim``) by one feature on one pair.

    ``pair`` is the index of the pair in the audit's list, ``feature`` the name of the tested
    feature, or None for the output itself. ``p_value`` or ``e_value`` is that of this test alone.
    ``epsilon_lower`` is a lower bound on epsilon at the delta of this point; all bounds of an audit
    hold together with the audit's confidence. ``refuted`` states whether this point is refuted at
    the level of the whole audit.

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
    r"""A sequential test, where ``path[t-1]`` is the logarithm of the wealth after t runs."""

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
        r"""The logarithm of the largest wealth so far; at least 0, since the wealth starts at 1."""
        return max(0.0, float(self.path.max(initial=0.0)))

    @property
    def e_value(self) -> float:
        r"""The largest wealth so far.

        If the claim holds, it ever reaches 1/alpha with probability at most alpha.
        """
        return math.exp(min(self.log_e, LARGEST_EXPONENT))

    def rejected_at(self, alpha: RationalLike = "0.05") -> int | None:
        r"""The number of runs when the wealth first reached 1/alpha; None if it never did."""
        crossed = np.flatnonzero(self.path >= log_bar(alpha))
        return int(crossed[0]) + 1 if len(crossed) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    r"""The result of all tests of a claim: the verdict, all outcomes, and the one to report.

    ``outcomes`` is ordered by view (a feature on the runs of one pair), and then by claimed point.
    ``row`` is the index of the reported outcome (:func:`reported_row`), to which ``witness`` and
    ``epsilon_lower`` belong. ``coverage`` states how much each view measured, and ``resolution`` is
    the result of :func:`resolution_of`.
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
    r"""The index of the outcome that the report states.

    ``surest`` is the index of the outcome with the strongest evidence. Candidates are the outcomes
    with its claimed point and its verdict. If that verdict is "refuted", tests of values are
    preferred to tests of the floating-point representation, and tests of time come last. Of the
    remaining candidates, the one with the largest bound is reported. All bounds hold together
    (``docs/proofs/audit_tests.md``).
    """
    causes = [*CAUSES]

    def rank(i: int) -> tuple[bool, int, float, bool]:
        row, best = outcomes[i], outcomes[surest]
        alike = row.claim == best.claim and row.refuted == best.refuted
        first = -causes.index(cause_of(row.feature)) if row.refuted else 0
        return alike, first, row.epsilon_lower, i == surest

    return max(range(len(outcomes)), key=rank)


def verdict_of(coverage: Sequence[Coverage], *, refuted: bool) -> VerdictWord:
    r"""The verdict of a statistical audit: "refuted", "not_refuted" or "nothing_measured".

    The verdict is "nothing_measured" if the claim is not refuted, and for some pair of datasets no
    feature measured anything.
    """
    if refuted:
        return "refuted"
    return "not_refuted" if coverage and not unmeasured_pairs(coverage) else "nothing_measured"


def resolution_of(
    tallies: Sequence[Tally],
    coverage: Sequence[Coverage],
    points: Sequence[Claim],
    shares: Sequence[Fraction],
) -> float:
    r"""The largest resolution of a view (a feature on the runs of one pair of datasets).

    The resolution of a view is the least probability at which 95 of 100 audits would detect a
    revealing output (:func:`resolution`), at the best claimed point. It is at least the fraction of
    outputs that the feature did not read. Views that measured nothing or are
    :attr:`Coverage.partial` are ignored; if no view is left, the result is infinite. ``shares``
    contains the level of one test of each view.
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
    r"""Limit a lower bound on epsilon to the claimed epsilon, unless the claim is refuted.

    A claimed epsilon between two rejected grid points may pass its own test, and then the bound
    exceeds it. The limited bound is also valid, and does not contradict the verdict.
    """
    return epsilon_lower if refuted else min(epsilon_lower, round_down(claim.exact[0]))


def versions() -> dict[str, str]:
    r"""The versions of dpcore, Python and numpy."""
    try:
        own = version("dpcore")
    except PackageNotFoundError:  # the source tree is not installed
        own = "unknown"
    return {"dpcore": own, "python": platform.python_version(), "numpy": np.__version__}
