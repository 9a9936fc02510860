r"""Coverage: the fraction of outputs that a test could use, and whether it measured anything.

An event can be learned from numbers, which have an order, and from outputs that are repeated. If
all outputs are equal, or all are distinct and unordered, no rule can distinguish the datasets: the
test has no power, and passing it means nothing.

Verdicts, exit codes and assertions use the following rule, where a view is a pair read through one
feature. A view does not measure a run whose output occurred only once and has no order, or could
not be read by its feature. A view measures nothing if this holds for more than half of its runs, or
if there are too few runs to refute the claim even if each of them reveals its dataset. An
audit that does not refute has measured something only if some view of each pair has measured
something (:func:`unmeasured_pairs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from audit.claims import Claim
from audit.features.apply_feature import is_unread
from audit.outputs.output_parser import UNREAD
from audit.statistical_tests.event import Tally
from audit.statistical_tests.fixed_sample_test import resolution

_RARE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    r"""The counts of one view: its ``runs``; those ``looked_at``, those whose output occurred only
    ``once`` and has no order (:class:`audit.statistical_tests.event.Tally`), and those ``unread``
    by the feature; whether the output is ``constant``, whether anything was ``measured``, and
    whether it is a ``learned`` score.
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
        r"""The coverage of all runs of a view, tested against each of ``points`` at ``level``.

        ``measured`` is true if at least half of all runs could be tested, and if these runs would
        refute a point when each reveals its dataset. With ``allow_constant`` a constant output
        counts as tested.
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
        r"""Whether the view tests a part of each output: a score, a column or the structure."""
        return self.learned or (self.feature or "").startswith(("column:", "structure"))

    @property
    def missed(self) -> int:
        return self.once + self.unread

    @property
    def blind(self) -> bool:
        return 2 * self.missed > self.runs

    @property
    def in_part(self) -> bool:
        r"""Whether the view measured something, but missed more than a few outputs."""
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
        parts = []
        if self.once:
            parts.append(f"{self.once:,} of {self.runs:,} outputs occurred once and have no order")
        if self.unread:
            unread = f"{self.unread:,} of {self.runs:,} outputs could not be read by"
            parts.append(f"{unread} {self.feature}")
        return " and ".join(parts)


def _unread(tally: Tally, feature: str | None) -> int:
    # Labels that occurred only once are counted by ``once``.
    if feature is None:
        return 0
    counts = tally.label_counts.sum(axis=0).tolist()
    labels = zip(tally.labels, counts, strict=True)
    return sum(count for label, count in labels if count > 1 and is_unread(str(label), feature))


def unmeasured_pairs(coverage: Sequence[Coverage]) -> list[Coverage]:
    r"""The first view of each pair in which no view measured anything."""
    known = {each.pair for each in coverage if each.measured}
    first: dict[int, Coverage] = {}
    for each in coverage:
        if each.pair not in known:
            first.setdefault(each.pair, each)
    return list(first.values())


def unmeasured(coverage: Sequence[Coverage], *, several: bool) -> list[str]:
    r"""One sentence for each view that did not measure all outputs; none if learned scores or
    columns were measured instead.
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
    r"""Why there is no resolution although some views were measured; None if none was.

    An output that only one dataset gives is detectable among repeated or ordered outputs, but a
    learned score or a column may hide it, and so may a part that was not read.
    """
    measured = [each for each in coverage if each.measured]
    if measured and any(UNREAD in warning for warning in warnings):
        return "parts of the outputs hold no plain data, and were not read (see the warning)"
    if not measured:
        return None
    if any(each.partial for each in measured):
        return (
            "outputs are rarely repeated: learned scores or columns of them were tested, which "
            "may miss an output that only one dataset gives"
        )
    return (
        "outputs are rarely repeated: rare outputs that only one dataset gives may have been missed"
    )


def unseen(coverage: Sequence[Coverage]) -> str:
    r"""The cases that a resolution does not cover, in brackets; empty if it covers all outputs."""
    views = [each for each in coverage if not each.learned]
    kept = [each for each in views if each.measured]
    missing = len(views) - len(kept)
    once = sum(each.once for each in kept if each.in_part)
    unread = sum(each.unread for each in kept if each.in_part)
    parts = []
    if missing:
        parts.append(f"for {missing:,} of {len(views):,} combinations of pair and feature")
    if once:
        parts.append(f"for {once:,} outputs that occurred only once")
    if unread:
        parts.append(f"for {unread:,} outputs that a feature could not read")
    return f" (nothing was measured {' and '.join(parts)})" if parts else ""
