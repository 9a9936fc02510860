r"""Learn from earlier runs which dataset (A or B) to guess from an output.

All outputs are divided into *cells*: intervals of numbers, and single labels
(:mod:`audit.statistical_tests.event`). A *rule*, learned from earlier runs, selects cells for each
epsilon of a claim. In each selected cell the rule guesses dataset A or dataset B, and in the other
cells it makes no guess. The rule may depend on earlier runs in any way: it affects the power of the
test, but never its validity (``docs/proofs/audit_tests.md``).

A rule has these numbers for each cell, which are positive for B and negative for A:

- ``lean``: the learned log-odds of dataset B;
- *reaches*: let p be a Clopper-Pearson lower bound on the probability of a right guess in the cell,
  at level 0.1 or 0.003. The absolute value of the reach is the epsilon with e^epsilon/(1 +
  e^epsilon) = p.

A rule contains several *experts*. Each expert selects cells by one of these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from audit.features.learner_columns import SIBLINGS, binary_tree, shrunk
from audit.outputs.reading import Integers, Reading
from audit.statistical_tests.event import Cells, Floats, Tally, Witness, witness_of
from dpcore.lazy_import import LazyModule
from dpcore.numbers.clopper_pearson import lower_end

special: Final = LazyModule("scipy.special")  # slow: not loaded by an audit without runs

EXPERTS: Final = ("zero cut", "strict 0.1", "best cut 0.1", "best cut 0.003", "leader")
r"""The names of the tested experts of a rule, in the order of :attr:`ThresholdFamily.experts`, and
of the leader. In each block, the leader guesses like a tested expert or like the last, untested
expert (which uses the learned odds).
"""

_LOOSE: Final = 0.1
FIRM: Final = 0.003
r"""The level of the reaches that "best cut 0.003" uses."""

_LEAST_SPREAD: Final = 1e-9
# The head start of each expert of a rule, in standard deviations, because a small lead among many
# experts is due to chance. The zero cut adapts least to chance; with a single view, its head start
# is larger.
_HEAD_STARTS: Final = np.array([2.5, 0.0, 0.0, 0.0, 1.0])
_ALONE: Final = np.array([1.5, 0.0, 0.0, 0.0, 0.0])
_BELIEVED: Final = 0.5
_MOST_PROMISED: Final = 2.0
SILENT: Final = 20

_Entry = TypeVar("_Entry", np.float64, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    r"""How often the guesses of one expert were right and wrong, for several values of epsilon.

    The arrays ``right``, ``wrong`` and ``sides`` have one entry per epsilon. ``sides`` is the
    number of different datasets (0, 1 or 2) that the expert guesses in its cells.
    """

    right: Integers
    wrong: Integers
    sides: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    r"""A method to select, for each epsilon, the cells of outputs in which a dataset is guessed.

    The expert assigns to each cell a *reach*, which estimates the largest epsilon that guesses in
    this cell can refute (see the module docstring). ``order`` contains the cells with a positive
    reach, by increasing reach. The expert guesses in the cells ``order[cut:]``, all of which have a
    reach above epsilon. If ``promise`` is None, these are all cells with a reach above epsilon.
    Otherwise the index ``cut`` maximises the predicted score sum(n (rate - q)) / sqrt(sum n), so
    that many cells with a reach just above epsilon do not dilute a few that distinguish the
    datasets well.

    Both sums are over the cells with a guess; n is the number of past runs in a cell, rate is the
    predicted fraction of right guesses in the cell, and q = e^epsilon/(1 + e^epsilon). ``seen[i]``
    is the sum of n over ``order[i:]``, and ``promise[i]`` is the sum of n rate over ``order[i:]``.
    ``ends`` contains the index in ``order`` after the last cell in which A is guessed (0 if A is
    guessed in no cell), and the same index for B.
    """

    order: Integers
    reach: Floats
    toward_b: NDArray[np.bool_]
    seen: Floats
    promise: Floats | None
    cells: int
    ends: tuple[int, int]

    @classmethod
    def of(cls, signed: Floats, past: Integers, rate: Floats | None = None) -> Expert:
        r"""Build an expert from each cell's signed reach, past runs and predicted accuracy."""
        order = np.flatnonzero(signed)
        order = order[np.argsort(np.abs(signed[order]), kind="stable")]
        toward_b, runs = signed[order] > 0, past[order].astype(np.float64)
        a, b = (np.flatnonzero(side)[-1:] + 1 for side in (~toward_b, toward_b))
        return cls(
            order=order,
            reach=np.abs(signed[order]),
            toward_b=toward_b,
            seen=_from_here_on(runs),
            promise=None if rate is None else _from_here_on(runs * rate[order]),
            cells=len(signed),
            ends=(int(a.sum()), int(b.sum())),
        )

    @property
    def signed(self) -> Floats:
        found = np.zeros(self.cells)
        found[self.order] = np.where(self.toward_b, self.reach, -self.reach)
        return found

    def cuts(self, epsilons: Floats) -> Integers:
        r"""For each epsilon, the index in ``order`` of the first cell with a guess."""
        first: Integers = np.searchsorted(self.reach, epsilons, side="right").astype(np.int64)
        if self.promise is None:
            return first
        base = int(first.min(initial=len(self.order)))  # no earlier cell qualifies at any epsilon
        seen, promise = self.seen[base:], self.promise[base:]
        score = (promise - special.expit(epsilons)[:, None] * seen) / np.sqrt(np.maximum(seen, 1.0))
        score[:, -1] = 0.0  # no guesses
        score[np.arange(score.shape[1]) < (first - base)[:, None]] = -1.0
        best: Integers = np.argmax(score, axis=1).astype(np.int64)
        return base + best

    def guesses(self, epsilon: float) -> NDArray[np.int8]:
        r"""The guess in each cell: +1 for dataset B, -1 for dataset A, 0 for no guess."""
        chosen = self.order[(cut := int(self.cuts(np.array([epsilon]))[0])) :]
        found = np.zeros(self.cells, dtype=np.int8)
        found[chosen] = np.where(self.toward_b[cut:], 1, -1)
        return found

    def promised(self, cuts: Integers, q: Floats) -> Floats:
        r"""The predicted excess of right guesses over ``q`` times all, in standard deviations.

        For each of ``cuts``, the guesses in the cells ``order[cut:]`` count. The result is nan if
        ``promise`` is None.
        """
        if self.promise is None:
            return np.full(len(cuts), np.nan)
        seen = self.seen[cuts]
        beyond: Floats = self.promise[cuts] - q * seen
        return beyond / np.sqrt(np.maximum(seen * q * (1.0 - q), _LEAST_SPREAD))

    def sums(self, counts: Integers) -> tuple[Integers, Integers]:
        r"""For new runs, the numbers of right and wrong guesses in ``order[i:]``, for each i."""
        world_a, world_b = counts[:, self.order]
        return (
            _from_here_on(np.where(self.toward_b, world_b, world_a)),
            _from_here_on(np.where(self.toward_b, world_a, world_b)),
        )


def _from_here_on(values: NDArray[_Entry]) -> NDArray[_Entry]:
    # The sums of values[i:] for i = 0, ..., len(values).
    found = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values[::-1], out=found[:-1][::-1])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdFamily:
    r"""A rule, learned from earlier runs, that guesses the dataset from the output.

    ``lean`` contains the learned log-odds of dataset B in each cell of outputs. Each of ``experts``
    has its own way to select the cells in which it guesses. The last expert selects cells by
    ``lean``. The last expert is not tested by itself, but :func:`follow` may copy its guesses.
    """

    cells: Cells
    lean: Floats
    experts: tuple[Expert, ...]

    @property
    def odds(self) -> tuple[Floats, Floats, Floats, Floats]:
        r"""Four versions of the log-odds of dataset B in each cell of outputs.

        The first version is the learned log-odds. The second version keeps these for labels and
        unusually frequent numbers, and is 0 elsewhere. The last two are conservative: the signed
        reaches of the experts "strict 0.1" and "best cut 0.003".
        """
        alone = np.ones(len(self.lean), dtype=np.bool_)
        alone[: self.cells.intervals] = self.cells.alone
        return (
            self.lean,
            np.where(alone, self.lean, 0.0),
            self.experts[1].signed,
            self.experts[3].signed,
        )


def learn_rule(tally: Tally, *, isotonic: bool = False) -> ThresholdFamily:
    r"""Learn from earlier runs (``tally``) how to guess the dataset of a run from its output.

    If ``isotonic`` is true, larger numbers indicate dataset B (as for a learned score), and the
    learned odds do not decrease from one interval to the next.

    Labels and unusually frequent numbers have their own cells. The intervals of numbers are the
    leaves of a binary tree, in numerical order. At each node, the rate of dataset B is shrunk
    towards that of the parent node, less if siblings differ more. A node *departs* from its parent
    if their rates differ by more than three standard deviations; then there is hardly any
    shrinkage. The rate of a label is shrunk towards 1/2 in the same way.

    The reach of a cell (see the module docstring) bounds the epsilon that guesses in the cell can
    refute. A node that does not depart takes its parent's reach if the parent's reach is larger or
    points to the other dataset. The expert "zero cut" guesses in every cell by the sign of the
    log-odds. The other experts guess only in cells with a reach above epsilon. "best cut 0.1" also
    uses the reaches of half-lines, which are the best events if the likelihood ratio is monotone.
    """
    cells = tally.cells()
    past = cells.counts.sum(axis=0)
    leaves, alone = np.split(cells.counts, [cells.intervals], axis=1)
    lean, reaches = _smooth(leaves, cells.alone)
    if isotonic:
        from scipy.optimize import isotonic_regression  # slow import that most views do not need

        # An empty cell has almost no weight.
        weights = np.maximum(leaves.sum(axis=0), _LEAST_SPREAD)
        lean = special.logit(isotonic_regression(special.expit(lean), weights=weights).x)
    known, _ = shrunk(alone, np.full(alone.shape[1], 0.5), part=1.0)
    lean = np.concatenate((lean, special.logit(known)))
    zero = np.where(lean == 0.0, 0.0, np.copysign(math.inf, lean))
    loose, far, firm = (
        np.concatenate((reach, _reach(alone, level)))
        for reach, level in zip(reaches, (_LOOSE, _LOOSE, FIRM), strict=True)
    )
    # For an unusually repeated number, the reach is the learned odds.
    firm[: cells.intervals][cells.alone] = lean[: cells.intervals][cells.alone]
    return ThresholdFamily(
        cells=cells,
        lean=lean,
        experts=(
            Expert.of(zero, past),
            Expert.of(loose, past),
            # "best cut 0.1" predicts with the learned rates, "best cut 0.003" with the lower bounds
            # that define its reaches.
            Expert.of(far, past, special.expit(np.sign(far) * lean)),
            Expert.of(firm, past, special.expit(np.abs(firm))),
            Expert.of(lean, past, special.expit(np.abs(lean))),
        ),
    )


def _reach(counts: Integers, level: float) -> Floats:
    most, total = counts.max(axis=0), counts.sum(axis=0)
    clear = 2 * most > total
    right = np.full(len(most), 0.5)
    right[clear] = lower_end(most[clear], total[clear], level)
    reach: Floats = special.logit(np.maximum(right, 0.5))
    return np.where(counts[1] > counts[0], reach, -reach)


def _smooth(
    leaves: Integers, alone: NDArray[np.bool_]
) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
    # The lean of each interval, and three reaches: at level 0.1, at level 0.1 with half-lines, and
    # at level 0.003.
    width, levels = leaves.shape[1], binary_tree(leaves)
    rate, loose, firm = np.full(1, 0.5), np.zeros(1), np.zeros(1)
    for counts in levels:
        copies = counts.shape[1] // len(rate)
        forced = np.flatnonzero(alone if counts is levels[-1] else [])
        rate, departs = shrunk(counts, np.repeat(rate, copies), part=SIBLINGS, forced=forced)
        loose = _pass_down(np.repeat(loose, copies), _reach(counts, _LOOSE), departs)
        firm = _pass_down(np.repeat(firm, copies), _reach(counts, FIRM), departs)
    loose, firm, departs = loose[:width], firm[:width], departs[:width]
    far = _pass_down(_half_lines(leaves, _LOOSE), loose, departs)
    return special.logit(rate)[:width], (loose, far, firm)


def _half_lines(leaves: Integers, level: float) -> Floats:
    # For each cell, the largest reach of a half-line that contains it, unbounded below or above.
    below = _reach(np.cumsum(leaves, axis=1), level)
    above = _reach(np.cumsum(leaves[:, ::-1], axis=1), level)[::-1]
    candidates = np.stack(
        (
            np.maximum.accumulate(np.maximum(below, 0)[::-1])[::-1],
            np.minimum.accumulate(np.minimum(below, 0)[::-1])[::-1],
            np.maximum.accumulate(np.maximum(above, 0)),
            np.minimum.accumulate(np.minimum(above, 0)),
        )
    )
    best = np.argmax(np.abs(candidates), axis=0)
    chosen: Floats = candidates[best, np.arange(leaves.shape[1])]
    return chosen


def _pass_down(parent: Floats, own: Floats, departs: NDArray[np.bool_]) -> Floats:
    # Where the child departs from its parent, return its reach; otherwise the larger reach if both
    # agree on the dataset, and that of the parent if they do not.
    stronger = np.where(np.abs(own) > np.abs(parent), own, parent)
    conflict = np.sign(own) * np.sign(parent) < 0
    return np.where(departs, own, np.where(conflict, parent, stronger))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    r"""A learned rule, and how often later runs fell into each of its cells.

    ``counts``, of shape (2, cells), contains the number of later runs in each cell of outputs; row
    0 is for dataset A. ``integral`` states that all numbers so far are integers, and only affects
    the description of events. ``sums`` caches the results of :meth:`Expert.sums` by expert.
    """

    rule: ThresholdFamily
    counts: Integers
    integral: bool
    sums: dict[int, tuple[Integers, Integers]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @classmethod
    def of(cls, rule: ThresholdFamily, fresh: Reading, worlds: NDArray[np.bool_]) -> Trial:
        return cls(
            rule=rule,
            counts=rule.cells.count(fresh, worlds),
            integral=rule.cells.integral and fresh.numbers[fresh.codes < 0].integral,
        )

    @classmethod
    def joined(cls, parts: Sequence[Trial]) -> Trial:
        counts = np.sum([part.counts for part in parts], axis=0)
        integral = all(part.integral for part in parts)
        return cls(rule=parts[0].rule, counts=counts, integral=integral)

    @property
    def runs(self) -> int:
        return int(self.counts.sum())

    def votes(self, expert: int, epsilons: Floats) -> Votes:
        return self.cast(expert, self.rule.experts[expert].cuts(epsilons))

    def cast(self, expert: int, cuts: Integers) -> Votes:
        r"""Count an expert's right and wrong guesses in ``order[cut:]`` for each of the cuts."""
        one = self.rule.experts[expert]
        if expert not in self.sums:
            self.sums[expert] = one.sums(self.counts)
        right, wrong = self.sums[expert]
        sides = (cuts < one.ends[0]).astype(np.int64) + (cuts < one.ends[1])
        return Votes(right=right[cuts], wrong=wrong[cuts], sides=sides)

    def witness(self, expert: int, epsilon: float) -> Witness | None:
        r"""The event on which an expert bases its guesses for the claimed ``epsilon``.

        This is the set of outputs for which the expert guesses A, or the set for which it guesses
        B, whichever has the larger margin. Both sets are fixed by earlier runs. Returns None if no
        earlier run was in either set.
        """
        guesses = self.rule.experts[expert].guesses(epsilon)
        cells, counts, integral = self.rule.cells, self.counts, self.integral
        found = (
            witness_of(cells, guesses < 0, counts, "A", integral=integral),
            witness_of(cells, guesses > 0, counts, "B", integral=integral),
        )
        return max((each for each in found if each), key=lambda each: each.margin, default=None)


def follow(
    views: Sequence[Sequence[Trial]], epsilons: Floats, delta: float
) -> tuple[list[Votes], list[Integers]]:
    r"""Guess in each block of runs like the expert that scored best in earlier blocks.

    ``views`` contains the results of several features on the same runs, block by block. All experts
    of all features are candidates. Returns, for each block, the counts of right and wrong guesses,
    and for each epsilon the index of the chosen expert (i len(EXPERTS) + j for expert j of feature
    i). The score of an expert is the sum of three terms: the excess of its right guesses over the
    maximum that the claim allows, in standard deviations; half of its predicted excess, which is
    limited to the observed excess plus 2; and a head start. There are no guesses in blocks that end
    within the first twentieth of the tested runs, when too little is known.
    """
    q, each = special.expit(epsilons), np.arange(len(epsilons))
    beyond, spread = np.zeros((1, len(epsilons))), np.zeros((1, len(epsilons)))
    ahead = np.tile(_HEAD_STARTS + (len(views) == 1) * _ALONE, len(views))[:, None]
    blocks, done = list(zip(*views, strict=True)), 0
    silent = sum(trials[0].runs for trials in blocks) / SILENT
    votes, chosen = [], []
    for trials in blocks:
        tried = [
            (trial, place, one, one.cuts(epsilons))
            for trial in trials
            for place, one in enumerate(trial.rule.experts)
        ]
        cast = [trial.cast(place, cuts) for trial, place, _, cuts in tried]
        names = ("right", "wrong", "sides")
        seen = {name: np.stack([getattr(vote, name) for vote in cast]) for name in names}
        did = beyond / np.sqrt(spread + 1.0)
        predicted = np.stack([one.promised(cuts, q) for *_, one, cuts in tried])
        promised = np.where(np.isnan(predicted), did, np.minimum(predicted, did + _MOST_PROMISED))
        best = np.argmax(did + _BELIEVED * promised + ahead, axis=0)
        guesses = seen["right"] + seen["wrong"]
        allowed = guesses * q + (1.0 - q) * (delta * trials[0].runs / 2) * seen["sides"]
        beyond, spread = beyond + seen["right"] - allowed, spread + guesses * q * (1.0 - q)
        done += trials[0].runs
        heard = int(done > silent)
        votes.append(Votes(**{name: heard * table[best, each] for name, table in seen.items()}))
        chosen.append(best)
    return votes, chosen
