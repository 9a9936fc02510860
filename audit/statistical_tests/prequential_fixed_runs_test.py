r"""The prequential test: test a claim and bound epsilon with a number of runs fixed beforehand.

In each run, a fair bit W picks the dataset D_W, and the mechanism M gives the output X ~ M(D_W).
For some outputs, the test guesses W; for the others it makes no guess. The runs are divided into
blocks, and the guesses in a block follow a rule that was learned only from earlier blocks. Each
block after the first one is half as large as all earlier blocks together. If M is (epsilon,
delta)-DP, a guess is right with probability at most

    q = (e^epsilon + delta/kappa) / (1 + e^epsilon),

where kappa is the probability that a guess is made. Each block after the first one gives a
randomised binomial p-value, and the p-values are combined by the inverse normal method. So no run
is tested with a rule that was learned from it, and all runs are tested except those of the first
block. Statement and proof: ``docs/proofs/audit_tests.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from audit.outputs.reading import Integers, read, read_worlds
from audit.statistical_tests.choose_event import (
    EXPERTS,
    FIRM,
    SILENT,
    Trial,
    Votes,
    follow,
    learn_rule,
)
from audit.statistical_tests.event import Floats, Tally, Witness
from dpcore.lazy_import import LazyModule
from dpcore.numbers.clopper_pearson import lower_end
from dpcore.numbers.enclosure import round_down, round_up
from dpcore.numbers.parameter import RationalLike, at_least_zero, integer, rational_in

special: Final = LazyModule("scipy.special")  # slow: not loaded by an audit without runs

WEIGHTS: Final = (0.06, 0.04, 0.04, 0.06, 0.8)
r"""The experts' shares of the false-alarm level, in the order of ``choose_event.EXPERTS``."""

LED: Final = (0.8, 0.07, 0.07, 0.06, 0.0)
r"""The experts' shares for a view of a family that has a leader
(:mod:`audit.statistical_tests.multiple_testing`).
"""

LEADING: Final = (0.0, 0.0, 0.0, 0.0, 1.0)
r"""The shares for the leader of a family, which follows the experts of its views."""

BERGER_BOOS_SHARE: Final = 50
r"""The level divided by this number is spent on bounds on how often a test guesses
(Berger and Boos 1994).
"""

GRID: Final[Floats] = np.concatenate(
    (
        np.arange(0.0, 2.0, 2.0**-11),
        np.arange(2.0, 8.0, 2.0**-8),
        np.arange(8.0, 64.0, 2.0**-5),
        np.arange(64.0, 513.0),
    )
)
r"""The fixed epsilons that are scanned from below; each is exact in binary."""

_LEADER: Final = len(EXPERTS) - 1
_FIRST_BLOCK: Final = 32
_BLOCK_GROWTH: Final = Fraction(3, 2)
_PROBES: Final = 16
_FIRST_SCAN: Final = 32
_SCAN: Final = 256
# The largest table of a scan, in entries (epsilons times cells); it limits the epsilons per step.
_TABLE: Final = 1 << 15
# The relative error allowed for the special functions; it always counts against a refutation.
_SLACK: Final = 2.0**-40
# The least probability in use, so that its logarithm and its normal score are finite.
_LEAST: Final = 2.0**-1022
_LARGEST_EXPONENT: Final = 700.0
# An upper bound on the number of blocks: 64 blocks, each half as large again, have 10^12 runs.
_MOST_BLOCKS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    r"""The right and wrong guesses of all blocks of runs, from which every claim can be tested.

    ``trials`` contains, for each block, the rule that was learned before it and the counts of its
    outputs. ``uniforms[j, i]`` in (0, 1] randomises the p-value of block j for expert i. ``tally``
    contains the counts of all runs. ``weights`` are the experts' shares of the level; an expert
    without a share is not tested. For a leader, ``beside`` contains the trials of other features on
    the same blocks. The leader may also copy the experts of these features. The leader then has the
    whole level.
    """

    trials: tuple[Trial, ...]
    uniforms: Floats
    tally: Tally = field(default_factory=Tally.empty)
    weights: tuple[float, ...] = WEIGHTS
    beside: tuple[tuple[Trial, ...], ...] = ()
    _found: dict[tuple[float, float, float], dict[str, float]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def p_values(
        self, epsilon: RationalLike, delta: RationalLike = 0, *, spend: RationalLike = "1/1000"
    ) -> dict[str, float]:
        r"""The p-value of (epsilon, delta)-DP by expert (those with a share), before weighting.

        If delta > 0, a p-value uses a confidence bound on the probability that the expert guesses.
        ``spend`` is the total error probability of these bounds over all experts. Each p-value
        includes its expert's share of ``spend``, so it is never below that share.
        """
        upper, rate = read_claim(epsilon, delta)
        cost = round_up(rational_in("spend", spend, "(0, 1)")) if rate > 0.0 else 0.0
        if (key := (upper, rate, cost)) not in self._found:  # the witness asks for it a second time
            at = np.array([upper])
            self._found[key] = {
                name: min(1.0, float(_tail(self._score(i, at, rate, own := share * cost))[0]) + own)
                for i, (name, share) in enumerate(zip(EXPERTS, self.weights, strict=True))
                if share
            }
        return self._found[key]

    def p_value(
        self, epsilon: RationalLike, delta: RationalLike = 0, *, spend: RationalLike = "1/1000"
    ) -> float:
        r"""A p-value p for the claim that the mechanism is (epsilon, delta)-DP.

        If the claim holds, P(p <= a) <= a for all a in [0, 1].
        """
        return min(1.0, *self._weighted(epsilon, delta, spend).values())

    def epsilon_lower(
        self, alpha: RationalLike = "0.05", delta: RationalLike = 0, *, known: float = 0.0
    ) -> float:
        r"""A lower confidence bound on epsilon at ``delta``.

        If the mechanism is (epsilon, delta)-DP, the bound exceeds epsilon with probability at most
        ``alpha``. All points of :data:`GRID` are tested from below. The bound is the point just
        below the first point that is not rejected, or 0.0 if not even the lowest point is rejected.
        The bound may be compared with any claim, even one chosen afterwards, because it is wrong
        only if one particular test errs: that of the first grid point at or above the true epsilon.
        ``known`` is another lower bound, at which the scan starts. The probability that the result
        exceeds epsilon although ``known`` does not is at most ``alpha``.
        """
        level = round_down(rational_in("alpha", alpha, "(0, 1)"))
        rate = read_claim(0, delta)[1]
        cost = round_up(Fraction(level) / BERGER_BOOS_SHARE) if rate > 0.0 else 0.0
        # The p-value of the expert "zero cut" never falls as epsilon grows (lemma 3 of the proof),
        # so bisection finds the range that it rejects. Above that range, the other experts test
        # every point.
        low = int(np.searchsorted(GRID, known, side="right")) - 1 if known > 0.0 else -1
        high = len(GRID)
        while high - low > 1 and self.weights[0]:
            tried = np.unique(np.linspace(low + 1, high - 1, _PROBES).astype(np.int64))
            score = self._score(0, GRID[tried], rate, cost * self.weights[0])
            alone = np.append(~(_tail(score) / self.weights[0] + cost <= level), [True])
            place = int(np.argmax(alone))
            low, high = [low, *tried.tolist(), high][place : place + 2]
        # Each expert continues where the previous one stopped, until none rejects the next point.
        tested = (1 + np.flatnonzero(self.weights[1:])).tolist()
        others = sorted(tested, key=lambda i: -self.weights[i])
        widest = max((len(one.rule.lean) for trials in self._views for one in trials), default=1)
        most = max(_SCAN, _TABLE // widest)
        start, size, failed = low + 1, _FIRST_SCAN, 0
        while start < len(GRID) and failed < len(others):
            expert = others[0]
            share = self.weights[expert]
            score = self._score(expert, GRID[start : start + size], rate, cost * share)
            kept = np.append(~(_tail(score) / share + cost <= level), [True])
            rejected = int(np.argmax(kept))
            start += rejected
            if rejected == len(score):
                size, failed = min(2 * size, most), 0
            else:
                failed, others = 1 if rejected else failed + 1, [*others[1:], expert]
                size = _FIRST_SCAN
        return float(GRID[start - 1]) if start else 0.0

    def followed(
        self, epsilon: RationalLike, delta: RationalLike = 0, *, spend: RationalLike = "1/1000"
    ) -> tuple[int, Witness | None]:
        r"""The index of a view, and the event of the expert with the smallest weighted p-value.

        The event is counted in the last block for which the expert has an event, and is None if
        there is no such block. Index 0 stands for ``trials``, and i > 0 for ``beside[i - 1]``.
        """
        (upper, rate), found = read_claim(epsilon, delta), self._weighted(epsilon, delta, spend)
        best = EXPERTS.index(min(found, key=lambda name: found[name]))
        places = [best] * len(self.trials)
        if best == _LEADER:
            places = [int(at[0]) for at in follow(self._views, np.array([upper]), rate)[1]]
        for j in range(len(places) - 1, -1, -1):
            view, expert = divmod(places[j], len(EXPERTS))
            if (witness := self._views[view][j].witness(expert, upper)) is not None:
                return view, witness
        return 0, None

    @property
    def _views(self) -> list[tuple[Trial, ...]]:
        return [self.trials, *self.beside]

    def _weighted(
        self, epsilon: RationalLike, delta: RationalLike, spend: RationalLike
    ) -> dict[str, float]:
        found = self.p_values(epsilon, delta, spend=spend)
        return {name: p / self.weights[EXPERTS.index(name)] for name, p in found.items()}

    def _score(self, expert: int, epsilons: Floats, delta: float, cost: float) -> Floats:
        if expert == _LEADER:
            votes, _ = follow(self._views, epsilons, delta)
        else:
            votes = [trial.votes(expert, epsilons) for trial in self.trials]
        runs = [trial.runs for trial in self.trials]
        return _join_blocks(votes, runs, self.uniforms[:, expert], delta, cost, epsilons)


def _join_blocks(
    votes: Sequence[Votes],
    runs: Sequence[int],
    uniforms: Floats,
    delta: float,
    cost: float,
    epsilons: Floats,
) -> Floats:
    # The combined normal score Z of the guesses in all blocks, at each epsilon. The guesses of a
    # block must be fixed by earlier blocks; ``cost`` is the error probability of the bounds on
    # kappa. The blocks' variances sum to 1: a block without guesses gets variance 0, any other
    # block the same fraction of the remaining variance as of the remaining runs, and the last block
    # the remainder. The variance of a block depends on the past and on its number of guesses, never
    # on whether they were right.
    score, luck = np.zeros(len(epsilons)), np.zeros(len(epsilons))
    budget = np.ones(len(epsilons))
    to_come, last = sum(runs), len(runs) - 1
    for j, (cast, size, u) in enumerate(zip(votes, runs, uniforms, strict=True)):
        guesses = cast.right + cast.wrong
        share = _share(cast, size, delta, cost / len(runs))
        loud = (guesses > 0) & (share > 0.0)
        wrong_rate = np.where(loud, share * special.expit(-epsilons) * (1.0 - _SLACK), 0.0)
        z = _normal_score(cast, wrong_rate, loud, float(u))
        taken = np.where(loud | (j == last), budget * (1.0 if j == last else size / to_come), 0.0)
        score += np.where(taken > 0.0, np.sqrt(taken) * z, 0.0)
        luck += np.where(loud, guesses * np.log1p(-wrong_rate), 0.0)
        budget -= taken
        to_come -= size
    # No p-value is below the probability that every guess is right by chance, so that the
    # randomisation alone does not refute and an expert without guesses has p = 1.
    joint: Floats = np.minimum(score, -special.ndtri(np.exp(luck)))
    return joint


def gather(outputs: object, worlds: object, *, seed: int, isotonic: bool = False) -> Evidence:
    r"""Learn to guess the dataset, and count right and wrong guesses, in one pass over the runs.

    ``outputs`` and ``worlds`` (the dataset of each run, True for B) are in run order. ``worlds``
    must be independent fair bits (:func:`audit.outputs.output_parser.draw_worlds`), and the runs
    must be independent. ``seed`` determines the randomisation that makes binomial p-values exact.
    ``isotonic`` is passed to :func:`audit.statistical_tests.choose_event.learn_rule`.
    """
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    ends = block_ends(len(reading))
    tally = Tally.empty().add(reading[: ends[0]], truth[: ends[0]])
    trials: list[Trial] = []
    for start, end in pairwise(ends):
        fresh, worlds_of = reading[start:end], truth[start:end]
        trials.append(Trial.of(learn_rule(tally, isotonic=isotonic), fresh, worlds_of))
        tally = tally.add(fresh, worlds_of)
    # Multiples of 2^-53 in (0, 1], not in [0, 1): P(U <= a) <= a even for the smallest a.
    uniforms = 1.0 - np.random.default_rng(integer("seed", seed, at_least=0)).random(
        (len(trials), len(EXPERTS))
    )
    return Evidence(trials=tuple(trials), uniforms=uniforms, tally=tally)


def block_ends(runs: int) -> list[int]:
    r"""The numbers of runs after which the blocks end; the first block is not tested."""
    ends = [runs]
    while ends[-1] / _BLOCK_GROWTH >= _FIRST_BLOCK:
        ends.append(int(ends[-1] / _BLOCK_GROWTH))
    return ends[::-1]


def _share(votes: Votes, runs: int, delta: float, level: float) -> Floats:
    # (1 - q) (1 + e^epsilon) = 1 - delta/kappa, rounded down; at most 0 if delta allows all guesses
    # to be right. For an expert that guesses only one dataset, delta/2 replaces delta.
    if delta == 0.0:
        return np.ones(len(votes.right))
    # An expert's guesses are constant over ranges of epsilon: each distinct count is bounded once.
    counts, place = np.unique(votes.right + votes.wrong, return_inverse=True)
    kappa: Floats = np.where(counts > 0, lower_end(counts, runs, level), 1e-300)[place]
    share: Floats = 1.0 - (delta * (1.0 + _SLACK)) * (votes.sides / 2) / (kappa * (1.0 - _SLACK))
    return share


def _normal_score(votes: Votes, wrong_rate: Floats, loud: NDArray[np.bool_], u: float) -> Floats:
    # Phi^-1(1 - p), where p = (1-u) P(Bin(K, r) < wrong) + u P(Bin(K, r) <= wrong) for K guesses
    # and the rate r of wrong guesses, and p = u without guesses. Both p and 1-p are computed as
    # sums, so that neither tail loses digits.
    p, rest = np.full(len(loud), u), np.full(len(loud), 1.0 - u)
    at = np.flatnonzero(loud)
    wrong, right = votes.wrong[at], votes.right[at]
    p[at] = _randomised_tail(u, wrong, right, wrong_rate[at], beyond=False)
    larger = ~(p[at] < 0.5)
    at, wrong, right = at[larger], wrong[larger], right[larger]
    rest[at] = _randomised_tail(u, wrong, right, wrong_rate[at], beyond=True)
    z: Floats = np.where(p < 0.5, -special.ndtri(np.maximum(p, _LEAST)), special.ndtri(rest))
    return z


def _randomised_tail(
    u: float, wrong: Integers, right: Integers, rate: Floats, *, beyond: bool
) -> Floats:
    # (1-u) P(Bin(K, r) < wrong) + u P(Bin(K, r) <= wrong), or its complement if ``beyond`` is true.
    part, none = (special.betainc, 1.0) if beyond else (special.betaincc, 0.0)
    below = np.where(wrong == 0, none, part(np.maximum(wrong, 1), right + 1.0, rate))
    upto = np.where(right == 0, 1.0 - none, part(wrong + 1.0, np.maximum(right, 1), rate))
    found: Floats = (1.0 - u) * below + u * upto
    return found


def _tail(score: Floats) -> Floats:
    # 1 - Phi(score), rounded up; nan does not refute.
    beyond: Floats = np.maximum(special.ndtr(-score) * (1.0 + _SLACK), _LEAST)
    return np.where(np.isnan(beyond), 1.0, beyond)


def read_claim(epsilon: RationalLike, delta: RationalLike) -> tuple[float, float]:
    r"""Parse epsilon and delta, rounded up: refuting the rounded claim also refutes the exact one.

    >>> read_claim("1/3", 0)[0] >= Fraction(1, 3)
    True
    """
    exact, rate = at_least_zero("epsilon", epsilon), rational_in("delta", delta, "[0, 1)")
    return round_up(exact), round_up(rate)


def resolution(
    runs: int,
    epsilon: RationalLike,
    alpha: RationalLike = "0.05",
    delta: RationalLike = 0,
    *,
    crowd: int = 1,
    rare: Callable[[float], float] = lambda _: 0.0,
) -> float:
    r"""The least probability at which 95 of 100 audits detect an output that reveals its dataset.

    Such an output occurs with probability eta on one dataset, and never on the other. The result is
    a conservative estimate of the least eta, checked by simulation. It is not a theorem, because
    the other outputs also matter. With N = runs, eta is the least value for which both of these
    probabilities are at least 0.975:

    - P(Bin(4N/9, eta/2) >= L): the expert "best cut 0.003" learns the output before the last two
      blocks;
    - P(Bin(5N/9, eta/2) >= K): the last two blocks contain K right guesses, which suffice even if
      the other blocks are uninformative.

    Here L and K are the least integers with

        .003^(1/L) > q,      sqrt(5/9) Phi^-1(1 - q^K) >= Phi^-1(1 - w alpha),

    where q is the claim's bound on the probability that a guess is right, and w is the expert's
    share of the level. L is at least ``crowd``, the count for which a number has its own cell.
    ``rare(count)`` is the fraction of runs whose output is a label that occurred fewer than
    ``count`` times (:class:`audit.statistical_tests.event.Tally`). A revealing event may consist of
    labels that are too rare to be learned, so their fraction is added. The result is 1.0 if only an
    output that always occurs on one dataset would be detected, and ``inf`` if no output would be
    detected or the labels are too rare.
    """
    level = float(rational_in("alpha", alpha, "(0, 1)"))
    count = integer("runs", runs, at_least=0)
    upper, rate = read_claim(epsilon, delta)
    upper = min(upper, _LARGEST_EXPONENT)
    cost = level / BERGER_BOOS_SHARE if rate > 0.0 else 0.0

    def enough(right: int, of: int, weight: float) -> bool:
        # The smaller of the last two blocks has 2/5 of their runs and of the right guesses.
        bound = special.betaincinv(
            0.4 * right, 0.4 * (of - right) + 1, weight * cost / _MOST_BLOCKS
        )
        wrong_rate = (1.0 - rate / bound if rate > 0.0 else 1.0) * special.expit(-upper)
        luck = math.exp(right * math.log1p(-max(wrong_rate, 0.0)))
        bar = -special.ndtri(max(weight * (level - cost), _LEAST))
        return bool(-special.ndtri(max(luck, _LEAST)) * math.sqrt(5 / 9) >= bar)

    early = 4 * count // 9
    late = count - early
    learned = max(crowd, math.floor(-math.log(FIRM) / math.log1p(math.exp(-upper))) + 1)
    least = 1 + bisect_left(
        range(1, late + 1), 1, key=lambda right: int(enough(right, late, WEIGHTS[3]))
    )
    if learned <= early and least <= late:
        noticed, guessed = (
            2 * float(special.betaincinv(need, of - need + 1, 0.975))
            for need, of in ((learned, early), (least, late))
        )
        if (eta := max(noticed, guessed)) <= 1.0:
            eta += rare(noticed * count / 2)
            return eta if eta <= 1.0 else math.inf
    # If an output always occurs on one dataset, every run is guessed once the leader guesses.
    first = (ends := block_ends(count))[0]
    scored = count - max(end for end in ends if SILENT * (end - first) <= count - first)
    return 1.0 if scored > 0 and enough(scored, scored, WEIGHTS[_LEADER]) else math.inf
