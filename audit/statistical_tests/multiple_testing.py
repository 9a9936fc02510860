r"""Test one claim with many tests (points, dataset pairs and features) at one significance level.

A *pair* consists of two neighbouring datasets, and a *view* is one feature on the runs of one pair.
For each view, rules that guess the dataset are learned from earlier runs, and the same guesses test
every claimed point (epsilon, delta). There are two kinds of tests:

    :func:`gather_views`   the number of runs is fixed beforehand: p-values, combined by Holm's
                           method
    :func:`watch_views`    the test may stop after any run: wealths, combined by their mean

For both, :func:`weigh` returns the result of every test and selects the one to report. If a pair
has several views and the number of runs is fixed, an additional test, the *leader* of the pair,
gets most of the level. In each block of runs, it copies the guesses of the view and expert
(:mod:`audit.statistical_tests.choose_event`) that did best on earlier blocks. With one view and one
point, the result is that of a single test. Proof: ``docs/proofs/audit_tests.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from audit.claims import Claim, CurveClaim, LayerRun, log_bar
from audit.outputs.output_parser import Outputs
from audit.statistical_tests.anytime_valid_test import EProcess, log_mean, watch_curve
from audit.statistical_tests.choose_event import EXPERTS, Trial
from audit.statistical_tests.event import Event, Floats, Tally, Witness
from audit.statistical_tests.prequential_fixed_runs_test import (
    BERGER_BOOS_SHARE,
    LEADING,
    LED,
    Evidence,
    gather,
)
from audit.statistical_tests.sample_outcome import (
    ANYTIME,
    FIXED,
    LARGEST_EXPONENT,
    Coverage,
    Outcome,
    Watched,
    Weighed,
    capped,
    reported_row,
    resolution_of,
    verdict_of,
)
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.enclosure import round_down, round_up
from dpcore.numbers.parameter import RationalLike, integer, rational

if TYPE_CHECKING:
    from audit.features.fit_score_model import Score


LEADER: Final = "leader"
r"""The name of a leader, used in place of a feature's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    r"""The values of one feature on the runs of one pair of datasets, in run order.

    - ``pair``: the index of the pair in the audit's list of pairs;
    - ``feature``: the name of the feature, or None for the outputs themselves;
    - ``outputs``: the values of the feature. The values of a learned feature are scores, and each
      score is computed by a model that was fitted only on earlier blocks of runs;
    - ``worlds``: the dataset of each run, True for B;
    - ``weight``: the view's relative share of the significance level;
    - ``models``: the models of a learned feature, by the number of runs on which they were fitted;
    - ``followed``: whether the leader of the pair (see the module docstring) may copy its guesses;
    - ``first``: for a learned feature, ``first(runs)`` returns the scores that an audit with this
      number of runs would compute.
    """

    pair: int = 0
    feature: str | None = None
    outputs: Outputs
    worlds: NDArray[np.bool_]
    weight: Fraction = Fraction(1)
    models: Mapping[int, Score] | None = None
    followed: bool = True
    first: Callable[[int], Outputs] | None = field(default=None, compare=False, repr=False)


def weigh(
    family: FixedFamily | FamilyProcess,
    alpha: RationalLike,
    *,
    allow_constant: bool = False,
    models: Sequence[Mapping[int, Score] | None] = (),
) -> Weighed:
    r"""Combine all tests of a claim: it is refuted if any claimed point is refuted by any test.

    ``family`` contains the evidence. An outcome is marked ``refuted`` at the level of the whole
    audit: the probability that any true point is marked is at most alpha. The bounds
    ``epsilon_lower`` hold together with probability 1 - alpha, because each is computed at the
    test's share of alpha, divided by the number of distinct deltas. The outcomes of leaders (see
    the module docstring) follow those of all views. ``resolution`` is the result of
    :func:`resolution_of`. ``models`` contains for each view the models that describe the event of a
    learned score, or None. The choice of views must not depend on their runs.
    """
    level, points = rational("alpha", alpha), family.claim.points
    found = family.judged(level)
    rows = zip(product(enumerate(family.tests), points), found.values, found.marked, strict=True)
    outcomes = tuple(
        Outcome(
            claim=point,
            pair=pair,
            feature=feature,
            refuted=refuted,
            epsilon_lower=capped(family.lower(i, point.exact[1], level), point, refuted=refuted),
            **{found.kind: value},
        )
        for ((i, (pair, feature)), point), value, refuted in rows
    )
    above = [row.epsilon_lower - float(row.claim.exact[0]) for row in outcomes]
    keys = list(zip(found.marked, found.strengths, above, strict=True))
    row = reported_row(outcomes, keys.index(max(keys)))
    at, tallies = outcomes[row].claim.exact, family.tallies
    shares = [level * part / len(points) for part in family.parts]
    view, witness = family.witness(*divmod(row, len(points)), shares[row // len(points)])
    if models and (of_score := models[view]) is not None:
        witness = scored(family.trials(view), at, of_score)
    views, shares = family.tests[: len(tallies)], shares[: len(tallies)]
    coverage = tuple(
        Coverage.of(
            tally,
            share,
            points,
            pair=pair,
            feature=feature,
            learned=score,
            allow_constant=allow_constant,
        )
        for tally, share, (pair, feature), score in zip(
            tallies, shares, views, family.learned, strict=True
        )
    )
    return Weighed(
        verdict=verdict_of(coverage, refuted=any(found.marked)),
        coverage=coverage,
        epsilon_lower=outcomes[row].epsilon_lower,
        witness=None if witness is None else witness.through(views[view][1]),
        layer=_layer(found.kind, len(outcomes)),
        resolution=resolution_of(tallies, coverage, points, shares),
        outcomes=outcomes,
        row=row,
        **{found.kind: found.joint},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    # The p-value or e-value of every test (by view, then by point), whether it is refuted at the
    # level of the family, and its strength; ``joint`` is the combined p-value or e-value.
    kind: str
    values: Sequence[float]
    marked: Sequence[bool]
    strengths: Sequence[float]
    joint: float


def _layer(kind: str, tests: int) -> LayerRun:
    single, shared = (
        (ANYTIME, "mean of the e-values") if kind == "e_value" else (FIXED, "Holm's method")
    )
    if tests == 1:
        return single
    return replace(single, method=f"{single.method}; {shared} of {tests} tests")


# -- a number of runs fixed beforehand ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFamily:
    r"""The evidence of all tests, if the numbers of runs are fixed beforehand.

    These fields have one entry for each view, followed by one entry for each leader (both are
    defined in the module docstring):

    - ``tests``: the index of the pair, and the name of the feature;
    - ``parts``: the share of the significance level; the shares sum to 1;
    - ``evidence``: the evidence for all claimed points;
    - ``followed``: the indices of the views from which the guesses come. A view has only its own
      index; a leader has those of the views that it may copy.

    ``learned`` states for each view whether its feature is a learned score.
    """

    claim: Claim | CurveClaim
    tests: tuple[tuple[int, str | None], ...]
    parts: tuple[Fraction, ...]
    evidence: tuple[Evidence, ...]
    followed: tuple[tuple[int, ...], ...]
    learned: tuple[bool, ...]
    _lower: dict[tuple[int, Fraction, Fraction], float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def tallies(self) -> list[Tally]:
        return [each.tally for each in self.evidence[: len(self.learned)]]

    def trials(self, view: int) -> tuple[Any, ...]:
        return self.evidence[view].trials

    def p_value(self, test: int, point: Claim, level: Fraction) -> float:
        r"""The p-value of a claimed point in one test (a view or a leader).

        If delta > 0, the p-value uses confidence bounds on the probability of a guess. Their error
        probability is the test's share of ``level``, divided by the number of claimed points and by
        :data:`BERGER_BOOS_SHARE`. The p-value is never below this error probability.
        """
        share = level * self.parts[test] / len(self.claim.points)
        return self.evidence[test].p_value(*point.exact, spend=share / BERGER_BOOS_SHARE)

    def lower(self, test: int, delta: Fraction, level: Fraction) -> float:
        r"""The lower confidence bound on epsilon from one test (a view or a leader).

        Its error probability is the test's share of ``level``, divided by the number of distinct
        deltas. For a leader, the scan starts at the largest bound of the views that it may copy.
        """
        if (key := (test, delta, level)) not in self._lower:
            views = self.followed[test] if test >= len(self.learned) else ()
            known = max((self.lower(view, delta, level) for view in views), default=0.0)
            own = level * self.parts[test] / len({point.exact[1] for point in self.claim.points})
            self._lower[key] = self.evidence[test].epsilon_lower(own, delta, known=known)
        return self._lower[key]

    def judged(self, level: Fraction) -> _Judged:
        r"""Decide all tests with Holm's method, weighted by the tests' shares of the level."""
        points = self.claim.points
        found = [self.p_value(i, point, level) for i in range(len(self.tests)) for point in points]
        weights = [part for part in self.parts for _ in points]
        adjusted = holm(found, weights)
        return _Judged(
            kind="p_value",
            values=found,
            marked=[each <= round_down(level) for each in adjusted],
            strengths=[-p / float(part) for p, part in zip(found, weights, strict=True)],
            joint=min(adjusted),
        )

    def witness(self, test: int, place: int, share: Fraction) -> tuple[int, Witness | None]:
        r"""The index of a view, and its event that is the evidence of a test against a point.

        The event is None if the test has no event. For a leader, the view is the one that the
        leader copied in the block of the event. ``place`` is the index of the claimed point.
        """
        at = self.claim.points[place].exact
        view, found = self.evidence[test].followed(*at, spend=share / BERGER_BOOS_SHARE)
        return self.followed[test][view], found


def gather_views(
    views: Sequence[View], claim: Claim | CurveClaim, *, seeds: Sequence[int]
) -> FixedFamily:
    r"""Collect the evidence of all views and leaders, for numbers of runs fixed beforehand.

    ``seeds`` contains one seed per view, and then one per pair for its leader. The seeds determine
    the randomised p-values.
    """
    if not views:
        raise InvalidParameter("views", views, "must contain at least one view")
    evidence = [
        gather(view.outputs, view.worlds, seed=seed, isotonic=view.models is not None)
        for view, seed in zip(views, seeds, strict=False)
    ]
    names = [(view.pair, view.feature) for view in views]
    followed: list[tuple[int, ...]] = [(i,) for i in range(len(views))]
    leaders: list[Evidence] = []
    for pair, seed in zip(dict.fromkeys(pair for pair, _ in names), seeds[len(views) :],
                          strict=False):  # fmt: skip
        mine = [i for i, view in enumerate(views) if view.pair == pair]
        # Before the first block, the leader follows the view with the largest part.
        led = sorted((i for i in mine if views[i].followed), key=lambda i: -views[i].weight)
        if len(mine) > 1 and led:
            followed.append(tuple(led))
            names.append((pair, LEADER))
            leaders.append(_leader([evidence[i] for i in led], seed))
            for i in mine:
                evidence[i] = replace(evidence[i], weights=LED)
    pairs = [pair for pair, _ in names]
    parts = parts_of([view.weight for view in views], pairs[: len(views)], pairs[len(views) :])
    return FixedFamily(
        claim=claim,
        tests=tuple(names),
        parts=tuple(parts),
        evidence=(*evidence, *leaders),
        followed=tuple(followed),
        learned=tuple(view.models is not None for view in views),
    )


def _leader(views: Sequence[Evidence], seed: int) -> Evidence:
    draws = np.random.default_rng(integer("seed", seed, at_least=0)).random(len(views[0].trials))
    return Evidence(
        trials=views[0].trials,
        beside=tuple(each.trials for each in views[1:]),
        uniforms=np.tile(1.0 - draws[:, None], len(EXPERTS)),  # in (0, 1], as for a view
        weights=LEADING,
    )


def weigh_views(
    views: Sequence[View],
    claim: Claim | CurveClaim,
    alpha: RationalLike,
    *,
    seed: int,
    allow_constant: bool = False,
) -> Weighed:
    r"""Test a claim on all views, with numbers of runs fixed beforehand.

    ``p_value`` of the result is the smallest Holm-adjusted p-value.
    """
    family = gather_views(views, claim, seeds=view_seeds(seed, 2 * len(views)))
    models = [view.models for view in views]
    return weigh(family, alpha, allow_constant=allow_constant, models=models)


# -- sequential -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    # The runs of one pair, with the values of each of its views, and the state of every view before
    # these runs.
    before: tuple[EProcess, ...]
    pair: int
    outputs: tuple[Outputs, ...]
    worlds: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyProcess(Watched):
    r"""The state of a sequential test of one claim on all views (features on pairs of datasets).

    The test statistic is the mean of the wealths of the views. If the mean ever reaches 1/alpha,
    the claim is refuted, and :func:`weigh` marks a point and a view for which it fails. Instances
    are frozen, and :meth:`update` returns the next state. These fields have one entry for each
    view:

    - ``tests``: the index of the pair, and the name of the feature;
    - ``parts``: the weight in the mean; the weights sum to 1;
    - ``learned``: whether the feature is a learned score;
    - ``processes``: the e-process of the view, with the evidence against each claimed point.

    ``path[t-1]`` is the logarithm of the mean wealth after t runs on all pairs together. A run
    counts once, even if several features are applied to it. A block consists of the runs of one
    call of :meth:`update`. If the mean ever exceeded 1, ``peak`` contains the block in which the
    mean was largest, and the number of runs of this block up to the maximum. Otherwise ``peak`` is
    None.
    """

    claim: Claim | CurveClaim
    tests: tuple[tuple[int, str | None], ...]
    processes: tuple[EProcess, ...]
    path: Floats
    parts: tuple[Fraction, ...]
    learned: tuple[bool, ...]
    peak: tuple[_Block, int] | None = None

    def through(self, pair: int, other: FamilyProcess) -> FamilyProcess:
        r"""Replace the features of a pair that has no runs yet by the features of ``other``."""
        mine = [i for i, (own, _) in enumerate(self.tests) if own == pair]
        if any(self.processes[i].runs for i in mine):
            raise InvalidParameter(
                "pair", pair, "already has runs, so its features can no longer change"
            )
        part, behind = sum((self.parts[i] for i in mine), Fraction(0)), mine[-1] + 1
        new: dict[str, Any] = {
            "tests": tuple((pair, name) for _, name in other.tests),
            "processes": other.processes,
            "parts": tuple(part * own for own in other.parts),
            "learned": other.learned,
        }
        for name, own in new.items():
            old = getattr(self, name)
            new[name] = (*old[: mine[0]], *own, *old[behind:])
        return replace(self, **new)

    def update(
        self, pair: int, outputs_by_feature: Sequence[Outputs], worlds: NDArray[np.bool_]
    ) -> FamilyProcess:
        r"""Return the state after more runs on a pair of datasets.

        ``outputs_by_feature`` contains, for each feature of the pair, its values on the new runs.
        ``worlds`` (True for dataset B) must be independent fair bits, and all runs of all pairs
        must be independent. The choice of the next pair, and the decision to continue, may depend
        on all earlier runs.
        """
        mine = [i for i, (own, _) in enumerate(self.tests) if own == pair]
        if not mine or len(mine) != len(outputs_by_feature):
            reason = f"must contain one entry for each of the {len(mine)} features of pair {pair}"
            raise InvalidParameter("outputs_by_feature", ABSENT, reason)
        block = _Block(
            before=self.processes, pair=pair, outputs=tuple(outputs_by_feature), worlds=worlds
        )
        processes = self._after(block, len(worlds))
        paths = [
            after.path[before.runs :]
            if i in mine
            else np.full(len(worlds), before.path[-1] if before.runs else 0.0)
            for i, (before, after) in enumerate(zip(self.processes, processes, strict=True))
        ]
        fresh = log_mean(np.stack(paths), np.log([float(part) for part in self.parts]))
        higher = len(fresh) > 0 and float(fresh.max()) > self.log_e
        return replace(
            self,
            processes=processes,
            path=np.concatenate((self.path, fresh)),
            peak=(block, int(np.argmax(fresh)) + 1) if higher else self.peak,
        )

    def _after(self, block: _Block, runs: int) -> tuple[EProcess, ...]:
        # The state of every view after the first ``runs`` runs of a block.
        news = iter(block.outputs)
        return tuple(
            process.update(next(news)[:runs], block.worlds[:runs])
            if pair == block.pair
            else process
            for (pair, _), process in zip(self.tests, block.before, strict=True)
        )

    def log_wealth(self) -> Floats:
        r"""The log-wealth of each view and point when the mean wealth of all tests was largest."""
        if self.peak is None:
            return np.zeros(len(self.tests) * len(self.claim.points))
        if len(self.tests) == len(self.claim.points) == 1:
            return np.array([self.log_e])
        return np.concatenate([process.log_wealth for process in self._after(*self.peak)])

    @property
    def tallies(self) -> list[Tally]:
        return [each.seen for each in self.processes]

    def trials(self, view: int) -> tuple[Any, ...]:
        return self.processes[view].tested

    def lower(self, test: int, delta: Fraction, level: Fraction) -> float:
        r"""The lower confidence bound on epsilon from one view, at its share of ``level``.

        This share is divided by the number of distinct deltas of the claim.
        """
        own = level * self.parts[test] / len({point.exact[1] for point in self.claim.points})
        return self.processes[test].epsilon_lower(own, delta)

    def judged(self, level: Fraction) -> _Judged:
        r"""Decide all tests, such that P(a true claim is ever marked) <= ``level`` = alpha.

        The wealths are taken at the time when the mean wealth of all tests was largest. A test is
        marked if every set of tests that contains it has a mean wealth of at least 1/alpha.
        """
        wealth = self.log_wealth()
        shares = [part for part in self.parts for _ in self.claim.points]
        # The test with the most wealth is marked if and only if the path has reached 1/alpha.
        most = (by_averages(wealth, shares) >= log_bar(level)) | (wealth == wealth.max())
        return _Judged(
            kind="e_value",
            values=[math.exp(min(log_e, LARGEST_EXPONENT)) for log_e in wealth.tolist()],
            marked=(most & (self.rejected_at(level) is not None)).tolist(),
            strengths=(wealth + [math.log(share) for share in shares]).tolist(),
            joint=self.e_value,
        )

    def witness(self, test: int, place: int, _share: Fraction) -> tuple[int, Witness | None]:
        return test, self.processes[test].witness(place)


def watch_views(
    claim: Claim | CurveClaim,
    *,
    pairs: int = 1,
    features: Sequence[str | None] = (None,),
    weights: Sequence[Fraction] = (),
    learned: Sequence[bool] = (),
) -> FamilyProcess:
    r"""Start a sequential test of ``claim`` with all ``features`` on each of ``pairs`` pairs.

    ``weights`` are the relative weights of the features (equal by default). ``learned`` states for
    each feature whether it is a learned score.
    """
    tests = tuple(product(range(pairs), features))
    if not tests:
        raise InvalidParameter("features", features, "requires at least one feature and one pair")
    scores = tuple(learned or [False] * len(features)) * pairs
    exact = [point.exact for point in claim.points]
    return FamilyProcess(
        claim=claim,
        tests=tests,
        processes=tuple(watch_curve(exact, isotonic=score) for score in scores),
        path=np.zeros(0),
        parts=tuple(parts_of(list(weights or [Fraction(1)] * len(features)) * pairs)),
        learned=scores,
    )


# -- the witness of a learned score ----------------------------------------------------------------


def scored(
    trials: Sequence[Trial], claim: tuple[Any, Any], models: Mapping[int, Score]
) -> Witness | None:
    r"""An event {score >= c} or {score < c} of a learned score that is evidence against ``claim``.

    ``claim`` is (epsilon, delta). For each block of runs, the event with the strongest evidence in
    earlier runs is counted in the block. Returns the event with the largest margin over all blocks,
    or None if no block has an event.
    """
    found = []
    for trial in trials:
        learned = int(trial.rule.cells.counts.sum())
        taught = max((runs for runs in models if runs <= learned), default=None)
        if taught is not None and (witness := _score_witness(trial, claim, taught, models[taught])):
            found.append(witness)
    return max(found, key=lambda witness: witness.margin, default=None)


def _score_witness(
    trial: Trial, claim: tuple[Any, Any], taught: int, model: Score
) -> Witness | None:
    cells = trial.rule.cells
    past = cells.counts[:, : cells.intervals].astype(np.float64)
    if cells.intervals < 2:
        return None
    q, delta = float(expit(float(claim[0]))), float(claim[1])
    above = np.cumsum(past[:, ::-1], axis=1)[:, ::-1][:, 1:]  # scores >= cuts[i]
    below = past.sum(axis=1, keepdims=True) - above

    def beyond(right: Any, wrong: Any) -> Any:
        guessed = right + wrong
        allowed = guessed * q + float(past.sum()) * delta * (1.0 - q)
        return (right - allowed) / np.sqrt(guessed * q * (1.0 - q) + 1.0)

    of_b, of_a = beyond(above[1], above[0]), beyond(below[0], below[1])
    world = 1 if of_b.max() >= of_a.max() else 0
    cut = int(np.argmax(of_b if world else of_a))
    chosen = np.zeros(cells.counts.shape[1], dtype=np.bool_)
    if world:
        chosen[cut + 1 : cells.intervals] = True
    else:
        chosen[: cut + 1] = True
    event = Event(cells=cells, chosen=chosen, integral=trial.integral)
    threshold = cells.cuts[cut : cut + 1].values.tolist()[0]
    return replace(
        Witness.counted(event, trial.counts, "B" if world else "A"),
        score={
            "learned_from": taught,
            "threshold": float(threshold),
            "side": ">=" if world else "<",
            "accuracy": _accuracy(trial),
            "words": model.words(float(threshold), above=bool(world)),
            **model.to_json(),
        },
    )


def _accuracy(trial: Trial) -> float | None:
    # The fraction of right guesses on later runs, if each cell is guessed from its learned odds.
    votes = trial.votes(0, np.zeros(1))
    guesses = int(votes.right[0] + votes.wrong[0])
    return round(int(votes.right[0]) / guesses, 3) if guesses else None


# -- sharing a level -------------------------------------------------------------------------------

PART: Final = Fraction(4, 5)
r"""The fraction of each view's part of the level that goes to the leader of its pair."""

# A bound on the rounding error of the logarithms and exponentials here.
_ROUNDING: Final = 2.0**-40


def holm(p_values: Sequence[float], shares: Sequence[Fraction] | None = None) -> list[float]:
    r"""Holm-adjusted p-values.

    Rejecting all hypotheses whose adjusted p-value is at most alpha gives P(a false rejection) <=
    alpha, for tests that depend on each other in any way. ``shares`` are the tests' shares of the
    level (equal by default). The tests are taken in increasing order of p/share. Each p-value is
    multiplied by the sum of its own share and all later shares, and divided by its own share. The
    adjusted p-value is the largest of these numbers so far (Holm 1979), rounded up. With equal
    shares, the k-th smallest of m p-values is multiplied by m - k + 1.
    """
    each = [Fraction(1)] * len(p_values) if shares is None else list(shares)
    adjusted, least, left = [1.0] * len(p_values), 0.0, sum(each, Fraction(0))
    for i in sorted(range(len(p_values)), key=lambda i: p_values[i] / float(each[i])):
        factor = left / each[i]
        product = p_values[i] * round_up(factor)
        least = max(least, math.nextafter(product, math.inf) if factor > 1 else product)
        adjusted[i] = min(1.0, least)
        left -= each[i]
    return adjusted


def by_averages(log_wealth: Floats, shares: Sequence[Fraction] | None = None) -> Floats:
    r"""For each e-value, the smallest mean over all sets that contain this e-value.

    Arguments and results are logarithms. The means are weighted by ``shares`` (equal by default)
    and rounded down. Rejecting all hypotheses whose result is at least 1/alpha gives P(a false
    rejection) <= alpha (Vovk and Wang 2021, section 5). This holds because the mean over the true
    hypotheses reaches 1/alpha with probability at most alpha.
    """
    top = float(log_wealth.max())
    if top == -math.inf:
        return log_wealth
    wealth = np.exp(log_wealth - top)
    weights = np.ones(len(wealth)) if shares is None else np.array([float(x) for x in shares])
    order = np.argsort(wealth, kind="stable")
    rising, sizes = (wealth * weights)[order], weights[order]
    least = np.empty(len(wealth))
    for place, i in enumerate(order):
        # Adding an e-value below the mean lowers the mean, so the set with the least mean consists
        # of this e-value and some number of the smallest others.
        others = np.concatenate(([0.0], np.cumsum(np.delete(rising, place))))
        counts = np.concatenate(([0.0], np.cumsum(np.delete(sizes, place))))
        least[i] = ((weights[i] * wealth[i] + others) / (weights[i] + counts)).min()
    with np.errstate(divide="ignore"):
        found: Floats = np.log(least) + top - _ROUNDING
    return found


def parts_of(
    weights: Sequence[Fraction], pairs: Sequence[int] = (), led: Sequence[int] = ()
) -> list[Fraction]:
    r"""The share of the significance level of each view, then that of each leader.

    ``weights`` contains the relative weight of each view, ``pairs`` the pair of each view, and
    ``led`` the pairs that have a leader (see the module docstring). A leader receives four fifths
    of the shares of its pair's views. The shares sum to 1.
    """
    parts = [weight / sum(weights, Fraction(0)) for weight in weights]
    taken = [PART * part if pair in led else Fraction(0)
             for part, pair in zip(parts, pairs or [0] * len(parts), strict=True)]  # fmt: skip
    left = [part - each for part, each in zip(parts, taken, strict=True)]
    return left + [
        sum((each for each, own in zip(taken, pairs, strict=True) if own == pair), Fraction(0))
        for pair in led
    ]


def view_seeds(seed: int, views: int) -> list[int]:
    r"""Seeds for the randomised p-values of ``views`` views.

    The first one is ``seed`` itself, so an audit with a single view uses ``seed``.
    """
    return [seed] + [
        int(np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(1, np.uint64)[0])
        for i in range(1, views)
    ]
