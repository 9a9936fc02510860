r"""Coverage: how many of the outputs a test could learn from, and whether it measured anything.

An event can be learned of numbers, which have an order, and of outputs that come again. Where every
output is the same, or is new each time and has no order, no rule tells one run from another: the
test is silent, and its silence says nothing about the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Final

from audit.claims.looks import TRAINING
from audit.evidence.event import Tally
from audit.evidence.fixed import WEIGHTS

__all__ = ["Coverage", "cover", "unmeasured", "unresolved", "unseen"]

_RARE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    r"""Of one view, its ``runs``; those that were ``looked_at``, and those whose output came only
    ``once`` and has no order (:class:`audit.evidence.event.Tally`); whether the output is
    ``constant``, whether anything was ``measured``, and whether it is a ``learned`` score.
    """

    runs: int
    looked_at: int
    once: int
    constant: bool
    measured: bool
    pair: int = 0
    feature: str | None = None
    learned: bool = False

    @classmethod
    def of(
        cls,
        tally: Tally,
        level: Fraction,
        *,
        pair: int = 0,
        feature: str | None = None,
        learned: bool = False,
    ) -> Coverage:
        r"""Of all runs of a view, tested at ``level``.

        Something was measured where the runs looked at would have sufficed for a bound above 0,
        had each of them shown its world.

        >>> import numpy as np
        >>> from audit.outputs.reading import read
        >>> def measured(outputs):
        ...     tally = Tally.empty().add(read(outputs), np.arange(900) % 2 == 0)
        ...     return Coverage.of(tally, Fraction(1, 20)).measured
        >>> measured(range(900)), measured(np.random.default_rng(1).random((900, 5)))
        (True, False)
        """
        return cls(
            runs=tally.runs,
            looked_at=tally.looked_at,
            once=tally.once,
            constant=tally.constant,
            measured=tally.looked_at >= _enough(level),
            pair=pair,
            feature=feature,
            learned=learned,
        )

    def accepted(self) -> Coverage:
        r"""Where the output is constant, and is meant to be, that was measured."""
        return replace(self, measured=self.measured or (self.constant and not self.learned))

    @property
    def in_part(self) -> bool:
        r"""Whether more than a few outputs had no part in what was measured."""
        return self.measured and self.once * _RARE > self.runs

    @property
    def reason(self) -> str:
        r"""Why nothing was measured, and what to do."""
        if self.learned:
            return "no score was learned that differs from run to run"
        if self.constant:
            return (
                "every output was the same; --allow-constant (allow_constant=True in Python) "
                "accepts that if it is intended"
            )
        if not self.runs:
            return "no run was drawn"
        if self.once * 2 > self.runs:
            return (
                f"{self.once:,} of {self.runs:,} outputs came only once and have no order, so no "
                "event of them could be learned; look at something of them with --feature "
                "(features in Python), such as coordinate:0, sum or round:1"
            )
        few = f"{self.runs:,} runs are too few to measure anything"
        return f"{few}; draw more with -n (runs in Python)"

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name."""
        return asdict(self)


def _enough(level: Fraction) -> int:
    # Each guess after the first look is right with probability 1/2 at epsilon = 0.
    return TRAINING + math.ceil(-math.log2(WEIGHTS[-1] * level.numerator / level.denominator))


def cover(
    tallies: Sequence[Tally],
    names: Sequence[tuple[int, str | None]],
    levels: Sequence[Fraction],
    *,
    allow_constant: bool = False,
    learned: Sequence[bool] = (),
) -> tuple[Coverage, ...]:
    r"""Of several views, by the place of their pair and the name of their feature, each with its
    level; ``learned`` says which are scores.
    """
    scores = learned or [False] * len(tallies)
    found = (
        Coverage.of(tally, level, pair=pair, feature=feature, learned=score)
        for tally, level, (pair, feature), score in zip(tallies, levels, names, scores, strict=True)
    )
    return tuple(each.accepted() if allow_constant else each for each in found)


def unmeasured(coverage: Sequence[Coverage], *, several: bool) -> list[str]:
    r"""One sentence for each view in which nothing was measured, or not of all outputs; none where
    learned scores were measured in its place.

    >>> none = Coverage(runs=0, looked_at=0, once=0, constant=False, measured=False)
    >>> unmeasured([none], several=False)
    ['nothing was measured: no run was drawn']
    """
    found = []
    scored = {each.pair for each in coverage if each.learned and each.measured}
    for each in coverage:
        if each.pair in scored:
            continue
        where = f"pair {each.pair + 1}: " if several else ""
        where += f"{each.feature}: " if each.feature is not None else ""
        if not each.measured:
            found.append(f"{where}nothing was measured: {each.reason}")
        elif each.in_part:
            found.append(
                f"{where}{each.once:,} of {each.runs:,} outputs came only once and have no order: "
                "of them nothing was measured; --feature looks at something of them"
            )
    return found


def unresolved(coverage: Sequence[Coverage]) -> str | None:
    r"""Why there is no resolution although something was measured; None where that is not so.

    An output that only one dataset gives would be seen among outputs that come again, or are
    ordered; a learned score may hide it.
    """
    measured = [each for each in coverage if each.measured]
    if not measured or not all(each.learned for each in measured):
        return None
    return (
        "outputs hardly ever come twice: learned scores of them were tested, and a score may miss "
        "an output that only one dataset gives"
    )


def unseen(coverage: Sequence[Coverage]) -> str:
    r"""Name what a resolution does not speak of, in brackets; nothing where it speaks of all.

    >>> none = Coverage(runs=9, looked_at=0, once=9, constant=False, measured=False)
    >>> unseen([none])
    ' (nothing was measured in 1 of 1 views)'
    """
    views = [each for each in coverage if not each.learned]
    kept = [each for each in views if each.measured]
    missing = len(views) - len(kept)
    once = sum(each.once for each in kept if each.in_part)
    parts = []
    if missing:
        parts.append(f"in {missing:,} of {len(views):,} views")
    if once:
        parts.append(f"of {once:,} outputs that came only once")
    return f" (nothing was measured {' and '.join(parts)})" if parts else ""
