r"""The anytime-valid test: test the claim while the runs are drawn, and stop at any time.

In each run, a fair bit picks one of the two datasets, A or B, and the mechanism gives an output X.
Before the run, a guess of the dataset (A, B or none) and a stake lambda(x) >= 0 are fixed for each
output x; the stake is 0 if there is no guess. The test bets on the guess: it keeps a *wealth*,
which starts at 1 and is multiplied in each run by

    1 + lambda(X) (1{guess for X right} - e^epsilon 1{guess for X wrong}) - fee,
    fee = delta (max of lambda over guesses of A + max of lambda over guesses of B) / 2.

If the mechanism is (epsilon, delta)-DP, the wealth is a supermartingale, so the probability that it
ever reaches 1/alpha is at most alpha (Ville's inequality). The fee is subtracted in every run, also
in runs without a guess. Without the fee, a bet on one revealing output would always win, although
the claim allows such an output with probability delta. Proof: ``docs/proofs/audit_tests.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlog1py

from audit.claims import LOOKS, log_bar
from audit.outputs.reading import Integers, Reading, read, read_worlds
from audit.statistical_tests.choose_event import ThresholdFamily, Trial, learn_rule
from audit.statistical_tests.event import Floats, Tally, Witness
from audit.statistical_tests.prequential_fixed_runs_test import GRID, read_claim
from audit.statistical_tests.sample_outcome import LARGEST_EXPONENT, Watched
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike

# The mixture of bets, fixed before any run: (index of an expert, fraction of the largest stake
# 1/(e^epsilon + delta), weight), and Kelly bets on every cell by its learned odds or by a
# conservative bound on them: (index in ThresholdFamily.odds, fraction of the Kelly stake, weight).
_EXPERT_BETS: Final = (
    *((0, 0.75 * 2.0**-k, 0.5 / 8) for k in range(8)),
    *((expert, f, 0.3 / 9) for expert, f in product((1, 2, 3), (0.9, 0.5, 0.2))),
)
_KELLY_BETS: Final = (
    (0, 0.9, 0.04),
    (0, 0.4, 0.04),
    (1, 0.8, 0.04),
    (2, 1.0, 0.04),
    (3, 1.0, 0.04),
)
_ZERO_CUT_BETS: Final = sum(bet[0] == 0 for bet in _EXPERT_BETS)  # these come first
_LOG_WEIGHTS: Final = np.log([bet[-1] for bet in (*_EXPERT_BETS, *_KELLY_BETS)])

_COARSE: Final = GRID[::8]
_SCAN: Final = 64
_CHUNK: Final = 1 << 15
_LARGEST_EPSILON: Final = 512
# Subtracted from the log-wealth at each run; the rounding error of a step is 10 times smaller.
_RUN_SLACK: Final = 2.0**-44


@dataclass(frozen=True, slots=True, kw_only=True)
class EProcess(Watched):
    r"""The state of a sequential test of one (epsilon, delta) point, or of all points of a curve.

    The test bets on the dataset of each run. Its wealth is averaged over bets and claimed points.
    If the claim holds, the wealth ever reaches 1/alpha with probability at most alpha (an
    e-process). ``path[t-1]`` is the logarithm of the wealth after t runs, and ``wealth[i, j]`` the
    logarithm of the current wealth of bet j against point i. The guessing ``rule`` is learned again
    at each *look*, that is, when the number of runs is in :data:`audit.claims.LOOKS`. ``tally``
    contains the outputs up to the last look, ``trials`` the results of the guesses up to then, and
    ``pending`` the runs since then. ``isotonic`` is passed to :func:`learn_rule`. Instances are
    frozen: :meth:`update` returns the next state.
    """

    claims: tuple[tuple[float, float], ...]
    tally: Tally
    rule: ThresholdFamily | None
    pending: tuple[tuple[Reading, NDArray[np.bool_]], ...]
    trials: tuple[Trial, ...]
    wealth: Floats
    path: Floats
    isotonic: bool = False

    @property
    def seen(self) -> Tally:
        r"""How often each output occurred in all runs so far, on each dataset."""
        return reduce(lambda tally, part: tally.add(*part), self.pending, self.tally)

    @property
    def tested(self) -> tuple[Trial, ...]:
        r"""The results of all guesses so far, including those in the runs since the last look."""
        if self.rule is None or not self.pending:
            return self.trials
        # Split the pending runs at the largest wealth, so that the bound is also evaluated there
        # and a rejected claim stays rejected. Ville's inequality allows evaluation at any time.
        waiting = sum(len(fresh) for fresh, _ in self.pending)
        left = int(np.argmax(self.path[-waiting:])) + 1
        parts: tuple[list[Trial], list[Trial]] = ([], [])
        for fresh, truth in self.pending:
            for part, piece in zip(parts, (slice(0, left), slice(left, None)), strict=True):
                if len(truth[piece]):
                    part.append(Trial.of(self.rule, fresh[piece], truth[piece]))
            left = max(left - len(fresh), 0)
        return (*self.trials, *(Trial.joined(part) for part in parts if part))

    @property
    def log_wealth(self) -> Floats:
        r"""For each claimed point, the logarithm of its current wealth (the mean over all bets)."""
        return log_mean(self.wealth.T, _LOG_WEIGHTS)

    def update(self, outputs: object, worlds: object) -> EProcess:
        r"""Return the state after more runs with these ``outputs`` and datasets.

        ``worlds`` contains the dataset of each run (True for B), in the order of ``outputs``. It
        must consist of independent fair bits, and the runs must be independent. The decision to
        draw more runs may depend on all earlier runs.
        """
        reading = read(outputs)
        truth = read_worlds(worlds, len(reading))
        state, start = self, 0
        while start < len(reading):
            look = LOOKS[bisect_right(LOOKS, state.runs)]
            end = min(len(reading), start + look - state.runs)
            state = state._step(reading[start:end], truth[start:end])
            if state.runs == look:
                tally = state.seen
                rule = learn_rule(tally, isotonic=self.isotonic)
                state = replace(state, tally=tally, rule=rule, pending=(), trials=state.tested)
            start = end
        return state

    def _step(self, fresh: Reading, truth: NDArray[np.bool_]) -> EProcess:
        if self.rule is None:
            path, wealth = np.zeros(len(fresh)), self.wealth
        else:
            path, wealth = self._bet(self.rule, self.rule.cells.locate(fresh), truth)
        path, pending = np.concatenate((self.path, path)), (*self.pending, (fresh, truth))
        return replace(self, pending=pending, path=path, wealth=wealth)

    def _bet(
        self, rule: ThresholdFamily, cells: Integers, truth: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        tables = [_log_factors(rule, epsilon, delta) for epsilon, delta in self.claims]
        wealth, path = self.wealth, []
        for start in range(0, len(cells), _CHUNK):
            part = slice(start, start + _CHUNK)
            world = truth[part].astype(np.int64)
            walks = [
                before[:, None] + np.cumsum(table[:, world, cells[part]], axis=1)
                for table, before in zip(tables, wealth, strict=True)
            ]
            mixed = np.stack([log_mean(walk, _LOG_WEIGHTS) for walk in walks])
            path.append(log_mean(mixed, np.full(len(mixed), -math.log(len(mixed)))))
            wealth = np.stack([walk[:, -1] for walk in walks])
        return np.concatenate(path), wealth

    def epsilon_lower(self, alpha: RationalLike = "0.05", delta: RationalLike = 0) -> float:
        r"""A lower confidence bound on epsilon at ``delta``, valid simultaneously at all times.

        If the mechanism is (epsilon, delta)-DP, the probability that this bound ever exceeds
        epsilon is at most ``alpha``. Every epsilon of a fixed grid is tested with its own
        e-process. This e-process is evaluated at three kinds of times: at every look, after the
        last run, and after the run since the last look at which the wealth against the claim was
        largest. The bound is the grid point just below the smallest grid point that was not
        rejected. It is 0.0 if the grid point 0 was not rejected.
        """
        bar = log_bar(alpha)
        rate = read_claim(0, delta)[1]
        trials = self.tested
        # The part of the wealth won by the expert "zero cut" is cheap to compute at all epsilons,
        # and every epsilon that it rejects is rejected by the whole mixture.
        alone = _best_wealth(trials, _COARSE, rate, zero_cut=True)
        start = _first_kept(alone, bar)
        while start < len(_COARSE):
            part = _COARSE[start : start + _SCAN]
            kept = _first_kept(_best_wealth(trials, part, rate), bar)
            start += kept
            if kept < len(part):
                break
        return float(_COARSE[start - 1]) if start else 0.0

    def witness(self, place: int = 0) -> Witness | None:
        r"""An event that is evidence against the claimed point with index ``place``.

        The event is the set of outputs for which one expert guesses one dataset, namely the expert
        whose bet has the most wealth. The runs are split at the looks, and the event is counted in
        the part where this bet won most. Returns None if the expert has no event in any part.
        """
        bet = int(np.argmax(self.wealth[place, : len(_EXPERT_BETS)]))
        epsilon, delta = self.claims[place]
        at = np.array([epsilon])
        ranked = sorted(
            self.tested, key=lambda trial: -float(_expert_gains(trial, at, delta)[bet, 0])
        )
        found = (trial.witness(_EXPERT_BETS[bet][0], epsilon) for trial in ranked)
        return next((witness for witness in found if witness is not None), None)


def watch(epsilon: RationalLike, delta: RationalLike = 0, *, isotonic: bool = False) -> EProcess:
    r"""Start a sequential test of an (epsilon, delta)-DP claim, where epsilon is at most 512."""
    return watch_curve([(epsilon, delta)], isotonic=isotonic)


def watch_curve(
    claims: Iterable[tuple[RationalLike, RationalLike]], *, isotonic: bool = False
) -> EProcess:
    r"""Start a sequential test of the claim that (epsilon, delta)-DP holds at all points.

    Every epsilon must be at most 512. The average of the points' e-processes is tested; it is also
    an e-process.
    """
    points = tuple(read_claim(epsilon, delta) for epsilon, delta in claims)
    if not points:
        raise InvalidParameter("claims", points, "must contain at least one (epsilon, delta)")
    if (largest := max(points)[0]) > _LARGEST_EPSILON:
        raise InvalidParameter("epsilon", largest, f"must be <= {_LARGEST_EPSILON}")
    return EProcess(
        claims=points,
        tally=Tally.empty(),
        rule=None,
        pending=(),
        trials=(),
        wealth=np.zeros((len(points), len(_LOG_WEIGHTS))),
        path=np.zeros(0),
        isotonic=isotonic,
    )


def log_mean(logs: Floats, log_weights: Floats) -> Floats:
    r"""The logarithm of sum_i w_i e^(logs_i), where i runs over the first axis of ``logs``.

    ``log_weights`` are the logarithms of the weights w_i. An entry nan of ``logs`` counts as -inf.
    """
    terms = logs + log_weights[:, None]
    terms = np.where(np.isnan(terms), -np.inf, terms)
    top = np.maximum(terms.max(axis=0), -LARGEST_EXPONENT)
    with np.errstate(divide="ignore"):
        mean: Floats = top + np.log(np.exp(terms - top).sum(axis=0))
    return mean


def _stake_limit(growth: Floats, delta: float) -> Floats:
    # The largest stake, at which a wrong guess loses all wealth.
    limit: Floats = (1.0 - _RUN_SLACK) / (growth + delta)
    return limit


def _kelly(odds: Floats, growth: Floats, delta: float) -> Floats:
    # Shape (epsilons, cells): the signed stakes with the largest growth rate if the odds were true.
    stake = np.maximum(expit(np.abs(odds)) * (1.0 + 1.0 / growth[:, None]) - 1.0, 0.0)
    signed: Floats = np.sign(odds) * np.minimum(stake, _stake_limit(growth, delta)[:, None])
    return signed


def _grow(epsilons: Floats) -> Floats:
    grown: Floats = np.exp(epsilons) * (1.0 + _RUN_SLACK)  # e^epsilon rounded up
    return grown


def _returns(stake: Floats, growth: Floats, pay: Floats) -> tuple[Floats, Floats, Floats]:
    # The gains per unit of wealth of a right guess, a wrong guess and no guess.
    return stake - pay, -np.minimum(stake * growth + pay, 1.0), -np.minimum(pay, 1.0)


def _sup(stakes: Floats) -> Floats:
    # sup over guesses of A plus sup over guesses of B, along the last axis (the cells).
    joint: Floats = np.maximum(stakes, 0.0).max(axis=-1) + np.maximum(-stakes, 0.0).max(axis=-1)
    return joint


def _log_factors(rule: ThresholdFamily, epsilon: float, delta: float) -> Floats:
    # Shape (bets, 2, cells): the log of the factor of one run, by its dataset and its cell.
    growth = _grow(np.array([epsilon]))
    limit = _stake_limit(growth, delta)[0]
    guesses = [expert.guesses(epsilon).astype(np.float64) for expert in rule.experts]
    stakes = np.stack(
        [f * limit * guesses[expert] for expert, f, _ in _EXPERT_BETS]
        + [f * _kelly(rule.odds[i], growth, delta)[0] for i, f, _ in _KELLY_BETS]
    )
    pay = delta / 2 * _sup(stakes)[:, None]
    right, wrong, silent = _returns(np.abs(stakes), growth[0], pay)
    in_a = np.where(stakes < 0, right, np.where(stakes > 0, wrong, silent))
    in_b = np.where(stakes > 0, right, np.where(stakes < 0, wrong, silent))
    with np.errstate(divide="ignore"):
        factors: Floats = np.log1p(np.stack((in_a, in_b), axis=1)) - _RUN_SLACK
    return factors


def _expert_gains(trial: Trial, epsilons: Floats, delta: float, bets: int | None = None) -> Floats:
    # Shape (bets, epsilons): the log-wealth that the first ``bets`` expert bets win over a trial.
    growth = _grow(epsilons)
    limit = _stake_limit(growth, delta)
    placed, gains = _EXPERT_BETS[:bets], []
    votes = {place: trial.votes(place, epsilons) for place in {bet[0] for bet in placed}}
    for expert, fraction, _ in placed:
        right, wrong = votes[expert].right, votes[expert].wrong
        silent = trial.runs - right - wrong
        pay = delta / 2 * fraction * limit * votes[expert].sides
        gains.append(_won((right, wrong, silent), _returns(fraction * limit, growth, pay)))
    return np.stack(gains)


def _kelly_gains(trial: Trial, epsilons: Floats, delta: float) -> Floats:
    # Shape (Kelly bets, epsilons): the log-wealth that the Kelly bets win over a trial.
    growth = _grow(epsilons)
    gains = []
    for source, fraction, _ in _KELLY_BETS:
        # Cells with the same odds have the same bets. If there are many labels, most have the same
        # counts and so the same odds.
        odds, place = np.unique(trial.rule.odds[source], return_inverse=True)
        world_a, world_b = np.zeros((2, len(odds)), dtype=np.int64)
        np.add.at(world_a, place, trial.counts[0])
        np.add.at(world_b, place, trial.counts[1])
        stakes = fraction * _kelly(odds, growth, delta)
        right = np.where(stakes > 0, world_b, np.where(stakes < 0, world_a, 0))
        silent = np.where(stakes == 0, world_a + world_b, 0)
        wrong = world_a + world_b - right - silent
        pay = delta / 2 * _sup(stakes)[:, None]
        returns = _returns(np.abs(stakes), growth[:, None], pay)
        gains.append(_won((right, wrong, silent), returns).sum(axis=1))
    return np.stack(gains)


def _won(counts: tuple[Integers, Integers, Integers], returns: tuple[Floats, ...]) -> Floats:
    # xlog1py(0, -1) is 0, as needed for guesses that were not made.
    won = [
        xlog1py(count, each) - _RUN_SLACK * count
        for count, each in zip(counts, returns, strict=True)
    ]
    total: Floats = won[0] + won[1] + won[2]
    return total


def _best_wealth(
    trials: tuple[Trial, ...], epsilons: Floats, delta: float, *, zero_cut: bool = False
) -> Floats:
    # The largest log-wealth after any trial, at each epsilon. With ``zero_cut``, only the bets of
    # that expert are used, which gives a cheap lower bound.
    bets = _ZERO_CUT_BETS if zero_cut else len(_LOG_WEIGHTS)
    wealth, best = np.zeros((bets, len(epsilons))), np.zeros(len(epsilons))
    for trial in trials:
        gains = [_expert_gains(trial, epsilons, delta, bets)]
        wealth += np.concatenate(
            gains if zero_cut else [*gains, _kelly_gains(trial, epsilons, delta)]
        )
        best = np.maximum(best, log_mean(wealth, _LOG_WEIGHTS[:bets]))
    return best


def _first_kept(best: Floats, bar: float) -> int:
    kept = np.flatnonzero(~(best >= bar))
    return int(kept[0]) if len(kept) else len(best)
