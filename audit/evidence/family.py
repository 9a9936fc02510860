r"""Many tests of one claim: its points, on several pairs, through several features, at one level.

A *view* is what one feature shows of the runs of one pair. Each view is learned once and every
claimed point is weighed on it. For a number of runs fixed beforehand the tests share the level by
Holm's method, the most of it has the leader of each pair; watched as they come, they share one
wealth, the mean of theirs. A view may have a larger part than another. With one view and one point
both are the plain test. Statement and proof: ``docs/proofs/confidence.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from audit.claims.claim import Claim
from audit.claims.curve_claim import CurveClaim
from audit.evidence.anytime import EProcess, log_bar, watch_curve
from audit.evidence.coverage import cover
from audit.evidence.event import Floats, Witness
from audit.evidence.fixed import LED, Evidence, gather
from audit.evidence.leader import LEADER, Leader, leaders_of, levels_of, witness_of
from audit.evidence.multiplicity import by_averages, holm
from audit.evidence.verdict import (
    ANYTIME,
    BERGER_BOOS_SHARE,
    FIXED,
    Outcome,
    Weighed,
    capped,
    resolution_of,
    verdict_of,
)
from audit.evidence.view import View, excess, layer_of, parts_of, scored, shown, view_seeds
from audit.learn.additive import Score
from audit.outputs.form import Outputs
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational

__all__ = ["FamilyProcess", "View", "view_seeds", "watch_views", "weigh_family", "weigh_views"]

_LARGEST_EXPONENT: Final = 700.0


def weigh_views(
    views: Sequence[View],
    claim: Claim | CurveClaim,
    alpha: RationalLike,
    *,
    seed: int,
    allow_constant: bool = False,
) -> Weighed:
    r"""Of numbers of runs fixed beforehand: refuted where any point is on any view.

    Each outcome marked ``refuted`` is, by Holm's method, at the level of the whole audit: if the
    points and views that hold are any, P(one of them is marked) <= alpha. ``p_value`` is the
    smallest adjusted one. The bounds ``epsilon_lower`` hold together with probability 1 - alpha:
    each has its part of alpha over the number of distinct deltas. A pair with several views has a
    leader as well (:mod:`audit.evidence.leader`), whose outcomes come behind those of all views.
    ``resolution`` is that of the view that resolves least, there at the point that resolves best;
    views in which nothing could be measured (``coverage``), and scores, have no part in it. Which
    views there are must not depend on their runs.

    >>> worlds = np.arange(1000) % 3 == 0
    >>> views = [View(outputs=worlds, worlds=worlds), View(outputs=0 * worlds, worlds=worlds)]
    >>> weighed = weigh_views(views, Claim(epsilon=1), "0.05", seed=7)
    >>> weighed.verdict, [outcome.refuted for outcome in weighed.outcomes]
    ('refuted', [True, False, True])
    """
    level, points = rational("alpha", alpha), claim.points
    if not views:
        raise InvalidParameter("views", views, "must hold at least one")
    seeds = view_seeds(seed, 2 * len(views))
    evidence = [
        gather(view.outputs, view.worlds, seed=own, isotonic=view.models is not None)
        for view, own in zip(views, seeds, strict=False)
    ]
    leaders = leaders_of(views, evidence, seeds=seeds[len(views) :])
    names = [(view.pair, view.feature) for view in views]
    parts, led = levels_of(views, leaders), [(leader.pair, LEADER) for leader in leaders]
    evidence = [
        replace(each, weights=LED) if (pair, LEADER) in led else each
        for each, (pair, _) in zip(evidence, names, strict=True)
    ]
    tests: list[Evidence | Leader] = [*evidence, *leaders]
    shares = [level * part / len(points) for part in parts]
    # A p-value is never below what its bounds on kappa cost, so these are bought with its share.
    found = [
        each.p_value(*point.exact, spend=share / BERGER_BOOS_SHARE)
        for each, share in zip(tests, shares, strict=True)
        for point in points
    ]
    weights = [part for part in parts for _ in points]
    adjusted = holm(found, weights)
    deltas, lower = {point.exact[1] for point in points}, dict[tuple[int, Fraction], float]()
    for (i, test), delta in product(enumerate(tests), deltas):
        own = level * parts[i] / len(deltas)
        if isinstance(test, Leader):
            known = max(lower[j, delta] for j in test.views)
            lower[i, delta] = test.epsilon_lower(own, delta, known=known)
        else:
            lower[i, delta] = test.epsilon_lower(own, delta)
    outcomes = tuple(
        Outcome(
            claim=point,
            pair=pair,
            feature=feature,
            p_value=p_value,
            refuted=(refuted := holms <= round_down(level)),
            epsilon_lower=capped(lower[i, point.exact[1]], point, refuted=refuted),
        )
        for ((i, (pair, feature)), point), p_value, holms in zip(
            product(enumerate([*names, *led]), points), found, adjusted, strict=True
        )
    )
    order = [(found[i] / float(weights[i]), -excess(row)) for i, row in enumerate(outcomes)]
    surest = order.index(min(order))
    row = shown(outcomes, surest)
    best, exact = row // len(points), outcomes[row].claim.exact
    view, witness = witness_of(
        views, evidence, tests[best], best, exact, shares[best] / BERGER_BOOS_SHARE
    )
    tallies, shares = [each.tally for each in evidence], shares[: len(views)]
    learned = [each.models is not None for each in views]
    coverage = cover(tallies, names, shares, allow_constant=allow_constant, learned=learned)
    return Weighed(
        verdict=verdict_of(coverage, refuted=outcomes[surest].refuted),
        coverage=coverage,
        epsilon_lower=outcomes[row].epsilon_lower,
        witness=None if witness is None else witness.through(views[view].feature),
        layer=layer_of(FIXED, len(outcomes)),
        p_value=min(adjusted),
        resolution=resolution_of(tallies, coverage, points, shares),
        outcomes=outcomes,
        row=row,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    # Runs of one pair as its views saw them, and every view's state before them.
    before: tuple[EProcess, ...]
    pair: int
    outputs: tuple[Outputs, ...]
    worlds: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyProcess:
    r"""The evidence so far against a claim on all views. Frozen: :meth:`update` gives the next one.

    ``path[t-1]`` is the logarithm of the mean wealth of all views after t runs, in the order they
    came, over all pairs; a run that is read through several features is one run. ``names`` are the
    (pair, feature) of the views, ``parts`` their parts in the mean, which sum to 1, ``learned``
    which of them are scores, ``processes`` their evidence, each over all claimed points. ``peak``
    is the block in which the mean was largest, and its place there, None where it never exceeded 1.
    """

    claim: Claim | CurveClaim
    names: tuple[tuple[int, str | None], ...]
    processes: tuple[EProcess, ...]
    path: Floats
    parts: tuple[Fraction, ...]
    learned: tuple[bool, ...]
    peak: tuple[_Block, int] | None = None

    @property
    def runs(self) -> int:
        r"""Runs seen, both worlds and all pairs together."""
        return len(self.path)

    @property
    def e_value(self) -> float:
        r"""The largest mean wealth so far: P(it ever reaches 1/alpha) <= alpha if the claim holds
        on every view.
        """
        return math.exp(min(self._log_e, _LARGEST_EXPONENT))

    @property
    def _log_e(self) -> float:
        return max(0.0, float(self.path.max(initial=0.0)))

    def rejected_at(self, alpha: RationalLike = "0.05") -> int | None:
        r"""The number of runs, over all pairs, at which the mean wealth first reached 1/alpha.

        To stop there refutes the claim as a whole: some point fails on some view. Which ones is
        said by :meth:`outcomes`; with several views it takes a wealth of more than 1/alpha on one
        of them.
        """
        crossed = np.flatnonzero(self.path >= log_bar(alpha))
        return int(crossed[0]) + 1 if len(crossed) else None

    def through(self, pair: int, other: FamilyProcess) -> FamilyProcess:
        r"""The same with the views of ``other``, of one pair, for a pair without runs so far."""
        mine = [i for i, (own, _) in enumerate(self.names) if own == pair]
        if any(self.processes[i].runs for i in mine):
            raise InvalidParameter("pair", pair, "has runs: its features are fixed")
        part, behind = sum((self.parts[i] for i in mine), Fraction(0)), mine[-1] + 1
        new: dict[str, Any] = {
            "names": tuple((pair, name) for _, name in other.names),
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
        r"""The state after these runs of a pair, read through each of its features in order.

        The worlds must be fair coins and the runs independent, of other pairs' runs as well. Which
        pair comes next, and whether to go on, may be decided by anything seen so far.
        """
        mine = [i for i, (own, _) in enumerate(self.names) if own == pair]
        if not mine or len(mine) != len(outputs_by_feature):
            reason = f"pair {pair} has {len(mine)} views"
            raise InvalidParameter("outputs_by_feature", len(outputs_by_feature), reason)
        block = _Block(
            before=self.processes, pair=pair, outputs=tuple(outputs_by_feature), worlds=worlds
        )
        processes = self._after(block, len(worlds))
        fresh = _log_mean(
            np.stack(
                [
                    after.path[before.runs :]
                    if i in mine
                    else np.full(len(worlds), before.path[-1] if before.runs else 0.0)
                    for i, (before, after) in enumerate(zip(self.processes, processes, strict=True))
                ]
            ),
            self.parts,
        )
        higher = len(fresh) > 0 and float(fresh.max()) > self._log_e
        return replace(
            self,
            processes=processes,
            path=np.concatenate((self.path, fresh)),
            peak=(block, int(np.argmax(fresh)) + 1) if higher else self.peak,
        )

    def _after(self, block: _Block, runs: int) -> tuple[EProcess, ...]:
        # Every view's state after the first runs of a block.
        news = iter(block.outputs)
        return tuple(
            process.update(next(news)[:runs], block.worlds[:runs])
            if pair == block.pair
            else process
            for (pair, _), process in zip(self.names, block.before, strict=True)
        )

    def log_wealth(self) -> Floats:
        r"""The logarithm of the wealth of each test, at the run where their mean was largest."""
        if self.peak is None:
            return np.zeros(len(self.names) * len(self.claim.points))
        if len(self.names) == len(self.claim.points) == 1:
            return np.array([self._log_e])
        return np.concatenate([process.log_wealth for process in self._after(*self.peak)])

    def outcomes(self, alpha: RationalLike = "0.05") -> tuple[Outcome, ...]:
        r"""Every test, by view and then by point.

        ``refuted`` marks those for which every set of tests that holds it has a mean wealth of at
        least 1/alpha, when the mean of all was largest: at all times together, P(one that holds is
        marked) <= alpha. The bounds hold together likewise, with their view's part of alpha over
        the number of distinct deltas each.
        """
        level, points = rational("alpha", alpha), self.claim.points
        deltas = {point.exact[1] for point in points}
        lower = {
            (i, delta): process.epsilon_lower(level * part / len(deltas), delta)
            for i, (process, part) in enumerate(zip(self.processes, self.parts, strict=True))
            for delta in deltas
        }
        wealth, refuted = self.log_wealth(), self.rejected_at(level) is not None
        # The wealthiest is marked exactly if the mean of all sufficed, which the path decides.
        shares = [part for part in self.parts for _ in points]
        marked = (by_averages(wealth, shares) >= log_bar(level)) | (wealth == wealth.max())
        rows = zip(product(enumerate(self.names), points), wealth.tolist(), marked, strict=True)
        return tuple(
            Outcome(
                claim=point,
                pair=pair,
                feature=feature,
                e_value=math.exp(min(log_e, _LARGEST_EXPONENT)),
                refuted=(it := refuted and bool(mark)),
                epsilon_lower=capped(lower[i, point.exact[1]], point, refuted=it),
            )
            for ((i, (pair, feature)), point), log_e, mark in rows
        )

    def _witness(
        self, view: int, place: int = 0, models: Mapping[int, Score] | None = None
    ) -> Witness | None:
        process, at = self.processes[view], self.claim.points[place].exact
        found = process.witness(place) if models is None else scored(process.tested, at, models)
        return None if found is None else found.through(self.names[view][1])

    def _row(self, outcomes: Sequence[Outcome]) -> int:
        shares = [math.log(part) for part in self.parts for _ in self.claim.points]
        wealth = (self.log_wealth() + shares).tolist()
        keys = [(row.refuted, won, excess(row)) for row, won in zip(outcomes, wealth, strict=True)]
        return shown(outcomes, keys.index(max(keys)))


def watch_views(
    claim: Claim | CurveClaim,
    *,
    pairs: int = 1,
    features: Sequence[str | None] = (None,),
    weights: Sequence[Fraction] = (),
    learned: Sequence[bool] = (),
) -> FamilyProcess:
    r"""Start watching a mechanism of which ``claim`` is claimed, on pairs 0, ..., each read through
    every one of ``features``, which have ``weights`` beside each other (all alike where they are
    left out); ``learned`` says which are scores.

    >>> from audit.outputs.worlds import draw_worlds
    >>> rng = np.random.default_rng(1)
    >>> process = watch_views(Claim(epsilon=1), pairs=2)
    >>> while process.rejected_at() is None:
    ...     for pair in (0, 1):  # the second one shows its world
    ...         worlds = draw_worlds(50, rng)
    ...         process = process.update(pair, [worlds * pair], worlds)
    >>> [outcome.refuted for outcome in process.outcomes()]
    [False, True]
    """
    names = tuple(product(range(pairs), features))
    if not names:
        raise InvalidParameter("features", features, "there must be a view: a pair and a feature")
    scores = tuple(learned or [False] * len(features)) * pairs
    exact = [point.exact for point in claim.points]
    return FamilyProcess(
        claim=claim,
        names=names,
        processes=tuple(watch_curve(exact, isotonic=score) for score in scores),
        path=np.zeros(0),
        parts=tuple(parts_of(list(weights or [Fraction(1)] * len(features)) * pairs)),
        learned=scores,
    )


def weigh_family(
    process: FamilyProcess,
    alpha: RationalLike,
    *,
    allow_constant: bool = False,
    models: Sequence[Mapping[int, Score] | None] = (),
) -> Weighed:
    r"""Of runs watched as they came: refuted where the mean wealth ever reached 1/alpha.

    ``resolution`` and ``coverage`` are those of :func:`weigh_views`; ``models`` are those of the
    views, for the witness.

    >>> weigh_family(watch_views(Claim(epsilon=1)), "0.05").e_value
    1.0
    """
    level, points = rational("alpha", alpha), process.claim.points
    outcomes = process.outcomes(level)
    row = process._row(outcomes)
    best = row // len(points)
    shares = [level * part / len(points) for part in process.parts]
    tallies = [each.seen for each in process.processes]
    coverage = cover(
        tallies, process.names, shares, allow_constant=allow_constant, learned=process.learned
    )
    return Weighed(
        verdict=verdict_of(coverage, refuted=process.rejected_at(level) is not None),
        coverage=coverage,
        epsilon_lower=outcomes[row].epsilon_lower,
        witness=process._witness(best, row % len(points), models[best] if models else None),
        layer=layer_of(ANYTIME, len(outcomes)),
        e_value=process.e_value,
        resolution=resolution_of(tallies, coverage, points, shares),
        outcomes=outcomes,
        row=row,
    )


def _log_mean(paths: Floats, parts: Sequence[Fraction]) -> Floats:
    # Over the first axis; a single one is itself, to the last bit.
    if len(paths) == 1:
        alone: Floats = paths[0]
        return alone
    weights = np.array([float(part) for part in parts])
    mean: Floats = logsumexp(paths, axis=0, b=weights[:, None])
    return mean
