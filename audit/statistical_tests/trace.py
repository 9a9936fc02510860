r"""The lower bound on epsilon as a function of the number of runs, for a plot.

It is computed after the audit and does not affect the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal

from audit.claims import LOOKS, Claim, CurveClaim
from audit.formats.result import fact
from audit.statistical_tests.multiple_testing import (
    View,
    gather_views,
    parts_of,
    view_seeds,
    watch_views,
)
from audit.statistical_tests.sample_outcome import capped
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational, write_rational

_POINTS: Final = 16
_FIRST_POINT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    r"""Lower bounds on epsilon, at the claim's delta, from increasing numbers of runs of an audit.

    ``points`` contains pairs (runs, epsilon_lower). If ``holds`` is "together", all bounds hold
    simultaneously with probability at least 1 - alpha. If ``holds`` is "each", this probability
    applies to each single bound, and the bounds need not hold simultaneously.
    """

    claim: Claim = fact("the point that was tested")
    alpha: RationalLike = fact(
        "the error probability, exact, as text",
        write=lambda alpha: write_rational(rational("alpha", alpha)),
    )
    holds: Literal["each", "together"] = fact(
        '"together" if all bounds hold simultaneously, "each" if each one does separately'
    )
    points: tuple[tuple[int, float], ...] = fact(
        '[{"runs", "epsilon_lower"}]',
        write=lambda points: [{"runs": runs, "epsilon_lower": bound} for runs, bound in points],
    )


def trace(
    views: Sequence[View],
    claim: Claim | CurveClaim,
    alpha: RationalLike = "0.05",
    *,
    seed: int,
    watched: bool = False,
    test: tuple[int, str | None] | None = None,
    point: Claim | None = None,
) -> Trace:
    r"""Compute the lower bounds of one test after each of about 16 numbers of runs of its pair.

    ``test`` is the (pair, feature) of a view or leader
    (:mod:`audit.statistical_tests.multiple_testing`), by default that of the first of ``views``.
    ``point`` is a claimed point, by default the first one. If ``watched`` is true, the audit is
    sequential, and all bounds hold together. Otherwise each bound is that of an audit with this
    number of runs and holds by itself, so that the largest bound, chosen afterwards, does not have
    this confidence. The last bound uses all runs.
    """
    pair, name = test or (views[0].pair, views[0].feature)
    at, level = point or claim.points[0], rational("alpha", alpha)
    mine = [i for i, view in enumerate(views) if view.pair == pair]
    every = parts_of([view.weight for view in views])
    own = [views[i] for i in mine]
    if watched:
        (place,) = (i for i in mine if views[i].feature == name)
        found = _watched(views[place], claim, at, level * every[place])
    else:
        seeds, pairs = view_seeds(seed, 2 * len(views)), list(dict.fromkeys(v.pair for v in views))
        chosen = [*(seeds[i] for i in mine), seeds[len(views) + pairs.index(pair)]]
        share = level * sum((every[i] for i in mine), Fraction(0))
        found = _fixed(own, claim, at, share, (pair, name), chosen)
    return Trace(
        claim=at,
        alpha=level,
        holds="together" if watched else "each",
        points=tuple((n, capped(bound, at, refuted=refuted)) for n, bound, refuted in found),
    )


def _fixed(
    views: Sequence[View],
    claim: Claim | CurveClaim,
    point: Claim,
    level: Fraction,
    test: tuple[int, str | None],
    seeds: Sequence[int],
) -> Iterator[tuple[int, float, bool]]:
    for runs in _prefixes(len(views[0].worlds)):
        cut = [
            replace(
                view,
                outputs=view.outputs[:runs] if view.first is None else view.first(runs),
                worlds=view.worlds[:runs],
            )
            for view in views
        ]
        family = gather_views(cut, claim, seeds=seeds)
        i = family.tests.index(test)
        share = level * family.parts[i] / len(claim.points)
        p_value = family.p_value(i, point, level)
        yield runs, family.lower(i, point.exact[1], level), p_value <= round_down(share)


def _watched(
    view: View, claim: Claim | CurveClaim, point: Claim, level: Fraction
) -> Iterator[tuple[int, float, bool]]:
    process, done = watch_views(claim, learned=[view.models is not None]), 0
    place = claim.points.index(point)
    for runs in _looks(len(view.worlds)):
        process = process.update(0, [view.outputs[done:runs]], view.worlds[done:runs])
        done = runs
        refuted = bool(process.judged(level).marked[place])
        yield runs, process.lower(0, point.exact[1], level), refuted


def _prefixes(runs: int) -> list[int]:
    if runs <= _FIRST_POINT:
        return [runs] if runs else []
    ratio = runs / _FIRST_POINT
    return sorted({round(_FIRST_POINT * ratio ** (k / (_POINTS - 1))) for k in range(_POINTS)})


def _looks(runs: int) -> list[int]:
    looks = [look for look in LOOKS if _FIRST_POINT <= look < runs]
    apart = -(-len(looks) // _POINTS) if looks else 1
    return [*looks[::-1][::apart][::-1], runs] if runs else []
