r"""The leader of a family: guess as whichever view and expert did best on earlier blocks.

Several views of the same runs share a level, and each expert of each view has a small part of it.
The leader has most of it and no rule of its own: in each block it guesses as the expert, of any of
the views it follows, whose guesses in earlier blocks speak most against the claim. So its rule is
fixed before the block, as every rule is. Statement and proof: ``docs/proofs/confidence.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from audit.evidence.event import Floats, Witness
from audit.evidence.fixed import GRID, Evidence, join_blocks, read_claim, read_level, tail
from audit.evidence.rule import Trial, follow
from audit.evidence.verdict import BERGER_BOOS_SHARE
from audit.evidence.view import View, parts_of, scored
from dpcore.numbers.enclosure import round_down, round_up
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["LEADER", "PART", "Leader", "leaders_of", "levels_of", "witness_of"]

LEADER: Final = "leader"
r"""What stands for the name of a feature in the outcome of a leader."""

PART: Final = Fraction(4, 5)
r"""What it takes of the level of every view of its pair."""

_SCAN: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    r"""The leader of some views of one pair: ``views`` are their places in the family, ``evidence``
    what was learned of each, in blocks of the same runs; ``uniforms`` has one coin a block.
    """

    pair: int
    views: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    uniforms: Floats

    def p_value(
        self, epsilon: RationalLike, delta: RationalLike = 0, *, spend: RationalLike = "1/1000"
    ) -> float:
        r"""P(p <= a) <= a for every a in [0, 1], whenever each of the views is (epsilon, delta)-DP.

        ``spend`` is paid as in :meth:`audit.evidence.fixed.Evidence.p_value`, where delta > 0.
        """
        upper, rate = read_claim(epsilon, delta)
        cost = round_up(read_level("spend", spend)) if rate > 0.0 else 0.0
        return min(1.0, float(self._tail(np.array([upper]), rate, cost)[0]) + cost)

    def epsilon_lower(
        self, alpha: RationalLike = "0.05", delta: RationalLike = 0, *, known: float = 0.0
    ) -> float:
        r"""A lower bound on the least epsilon at which each of the views is (epsilon, delta)-DP;
        ``known`` is another one: where that holds, P(this one does not) <= alpha.

        The scan of :meth:`audit.evidence.fixed.Evidence.epsilon_lower`, begun behind ``known``.
        """
        level = round_down(read_level("alpha", alpha))
        rate = read_claim(0, delta)[1]
        cost = round_up(Fraction(level) / BERGER_BOOS_SHARE) if rate > 0.0 else 0.0
        start = int(np.searchsorted(GRID, known, side="right")) if known > 0.0 else 0
        size = 8
        while start < len(GRID):
            found = self._tail(GRID[start : start + size], rate, cost)
            rejected = int(np.argmax(np.append(~(found + cost <= level), [True])))
            start += rejected
            if rejected < len(found):
                break
            size = min(2 * size, _SCAN)
        return float(GRID[start - 1]) if start else 0.0

    def guessed(
        self, epsilon: RationalLike, delta: RationalLike = 0
    ) -> Iterator[tuple[int, int, Trial]]:
        r"""Whom it followed at a claim, the last block first: the place of the view in the family,
        the place of the expert in its rule, and what they came to.
        """
        upper, rate = read_claim(epsilon, delta)
        _, chosen = follow(self._trials, np.array([upper]), rate)
        for j in range(len(chosen) - 1, -1, -1):
            at = int(chosen[j][0])
            for place, each in zip(self.views, self.evidence, strict=True):
                experts = len(each.trials[j].rule.experts)
                if at < experts:
                    yield place, at, each.trials[j]
                    break
                at -= experts

    @property
    def _trials(self) -> list[tuple[Trial, ...]]:
        return [each.trials for each in self.evidence]

    def _tail(self, epsilons: Floats, delta: float, cost: float) -> Floats:
        votes, _ = follow(self._trials, epsilons, delta)
        runs = [trial.runs for trial in self.evidence[0].trials]
        return tail(join_blocks(votes, runs, self.uniforms, delta, cost, epsilons))


def leaders_of(
    views: Sequence[View], evidence: Sequence[Evidence], *, seeds: Sequence[int]
) -> tuple[Leader, ...]:
    r"""One leader for each pair of which several views are tested and any is ``followed``; each
    seed is of the coins of one.
    """
    found = []
    for pair, seed in zip(dict.fromkeys(view.pair for view in views), seeds, strict=False):
        mine = [i for i, view in enumerate(views) if view.pair == pair]
        # Before anything is known, the one with the largest part leads.
        led = sorted((i for i in mine if views[i].followed), key=lambda i: -views[i].weight)
        if len(mine) < 2 or not led:
            continue
        blocks = len(evidence[led[0]].trials)
        coins = np.random.default_rng(integer("seed", seed, at_least=0)).random(blocks)
        found.append(
            Leader(
                pair=pair,
                views=tuple(led),
                evidence=tuple(evidence[i] for i in led),
                uniforms=1.0 - coins,  # from (0, 1], as those of a view
            )
        )
    return tuple(found)


def levels_of(views: Sequence[View], leaders: Sequence[Leader]) -> list[Fraction]:
    r"""The parts of the level, of the views and then of the leaders; they sum to 1. A leader has
    four fifths of what the views of its pair have without it.

    >>> levels_of([View(outputs=[], worlds=np.zeros(0, bool), weight=Fraction(3))], ())
    [Fraction(1, 1)]
    """
    parts = parts_of([view.weight for view in views])
    pairs = [leader.pair for leader in leaders]
    left, taken = [], dict.fromkeys(pairs, Fraction(0))
    for part, view in zip(parts, views, strict=True):
        led = PART * part if view.pair in taken else Fraction(0)
        left.append(part - led)
        if led:
            taken[view.pair] += led
    return [*left, *(taken[pair] for pair in pairs)]


def witness_of(
    views: Sequence[View],
    evidence: Sequence[Evidence],
    test: Evidence | Leader,
    place: int,
    claim: tuple[Fraction, Fraction],
    spend: Fraction,
) -> tuple[int, Witness | None]:
    r"""What speaks for the test at a ``place`` of the family: the place of the view and its event.
    Those of a leader are of whom it followed last.
    """
    if not isinstance(test, Leader):
        if (models := views[place].models) is None:
            return place, test.witness(*claim, spend=spend)
        return place, scored(test.trials, claim, models)
    upper, _ = read_claim(*claim)
    for view, expert, trial in test.guessed(*claim):
        if (witness := trial.witness(expert, upper)) is not None:
            if (models := views[view].models) is not None:
                witness = scored(evidence[view].trials, claim, models)
            return view, witness
    return test.views[0], None
