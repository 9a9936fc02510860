r"""Trace the bound: epsilon_lower as a function of the number of runs, for a picture.

Data only, computed after the audit; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from audit.claims.claim import Claim
from audit.claims.curve_claim import CurveClaim
from audit.claims.looks import LOOKS
from audit.evidence.anytime import watch
from audit.evidence.fixed import LED, WEIGHTS, gather
from audit.evidence.leader import leaders_of, levels_of
from audit.evidence.verdict import BERGER_BOOS_SHARE, capped
from audit.evidence.view import View, parts_of, view_seeds
from audit.outputs.form import Outputs
from audit.outputs.reading import read_worlds
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational, write_rational

__all__ = ["Trace", "trace_anytime", "trace_fixed", "trace_leader"]

_POINTS: Final = 16
_FIRST_POINT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    r"""Lower bounds on epsilon, at the claim's delta, from growing numbers of the first runs.

    ``points`` are (runs, epsilon_lower). With ``holds`` "each", every point is by itself a bound
    with confidence 1 - alpha, not all of them together; with "together" all hold together with
    that confidence.
    """

    claim: Claim
    alpha: RationalLike
    holds: Literal["each", "together"]
    points: tuple[tuple[int, float], ...]

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name; the claim and alpha exact, as text."""
        return {
            "claim": self.claim.to_json(),
            "alpha": write_rational(rational("alpha", self.alpha)),
            "holds": self.holds,
            "points": [{"runs": runs, "epsilon_lower": bound} for runs, bound in self.points],
        }


def trace_fixed(
    outputs: Outputs | Callable[[int], Outputs],
    worlds: object,
    claim: Claim,
    alpha: RationalLike = "0.05",
    *,
    seed: int,
    isotonic: bool = False,
    weights: tuple[float, ...] = WEIGHTS,
) -> Trace:
    r"""The prequential bound of about 16 prefixes, each taken as an audit of that many runs.
    ``outputs`` may be a function of their number, as learned scores are, which are ``isotonic``;
    ``weights`` are those of :class:`audit.evidence.fixed.Evidence`.

    Each point holds by itself with confidence 1 - alpha: who picks the largest afterwards has no
    such confidence. The last is that of all runs.

    >>> from audit.outputs.worlds import draw_worlds
    >>> worlds = draw_worlds(1000, np.random.default_rng(1))
    >>> found = trace_fixed(worlds.astype(int), worlds, Claim(epsilon=1), seed=7)  # no noise
    >>> found.points[-1][0], found.points[-1][1] > 4
    (1000, True)
    """
    truth = read_worlds(worlds, len(np.asarray(worlds)))
    epsilon, delta = claim.exact
    level = rational("alpha", alpha)
    points = []
    for runs in _prefixes(len(truth)):
        seen = outputs(runs) if callable(outputs) else outputs[:runs]
        evidence = gather(seen, truth[:runs], seed=seed, isotonic=isotonic)
        evidence = replace(evidence, weights=weights)
        bound = evidence.epsilon_lower(level, delta)
        p_value = evidence.p_value(epsilon, delta, spend=level / BERGER_BOOS_SHARE)
        points.append((runs, capped(bound, claim, refuted=p_value <= round_down(level))))
    return Trace(claim=claim, alpha=level, holds="each", points=tuple(points))


def trace_leader(
    views: Sequence[View],
    claim: CurveClaim | Claim,
    point: Claim,
    alpha: RationalLike = "0.05",
    *,
    seed: int,
    pair: int = 0,
) -> Trace:
    r"""The same of the leader of a pair in a family of ``views``, against one of the points of a
    claim, where that is the test which speaks against it the most.

    >>> from audit.outputs.worlds import draw_worlds
    >>> worlds = draw_worlds(200, np.random.default_rng(1))
    >>> views = [View(outputs=worlds, worlds=worlds), View(outputs=0 * worlds, worlds=worlds)]
    >>> [runs for runs, _ in trace_leader(views, *[Claim(epsilon=1)] * 2, seed=7).points][::5]
    [64, 94, 137, 200]
    """
    seeds, (epsilon, delta) = view_seeds(seed, 2 * len(views)), point.exact
    pairs = list(dict.fromkeys(view.pair for view in views))
    mine = [i for i, view in enumerate(views) if view.pair == pair]
    every = parts_of([view.weight for view in views])
    level = rational("alpha", alpha) * sum((every[i] for i in mine), Fraction(0))
    deltas = len({each.exact[1] for each in claim.points})
    points = []
    for runs in _prefixes(len(views[mine[0]].worlds)):
        cut = [_first(views[i], runs) for i in mine]
        evidence = [
            replace(
                gather(view.outputs, view.worlds, seed=seeds[i], isotonic=view.models is not None),
                weights=LED,
            )
            for i, view in zip(mine, cut, strict=True)
        ]
        coins = seeds[len(views) + pairs.index(pair) :]
        (leader,) = leaders_of(cut, evidence, seeds=coins)
        *parts, own = (level * part for part in levels_of(cut, [leader]))
        known = max(evidence[i].epsilon_lower(parts[i] / deltas, delta) for i in leader.views)
        bound = leader.epsilon_lower(own / deltas, delta, known=known)
        own /= len(claim.points)
        p_value = leader.p_value(epsilon, delta, spend=own / BERGER_BOOS_SHARE)
        points.append((runs, capped(bound, point, refuted=p_value <= round_down(own))))
    return Trace(claim=point, alpha=rational("alpha", alpha), holds="each", points=tuple(points))


def _first(view: View, runs: int) -> View:
    seen = view.outputs[:runs] if view.first is None else view.first(runs)
    return replace(view, outputs=seen, worlds=view.worlds[:runs])


def trace_anytime(
    outputs: Outputs,
    worlds: object,
    claim: Claim,
    alpha: RationalLike = "0.05",
    *,
    isotonic: bool = False,
) -> Trace:
    r"""The anytime bound at about 16 looks and at the end; all points hold together.

    >>> import numpy as np
    >>> from audit.outputs.worlds import draw_worlds
    >>> worlds = draw_worlds(1000, np.random.default_rng(1))
    >>> trace_anytime(worlds.astype(int), worlds, Claim(epsilon=1)).holds
    'together'
    """
    truth = read_worlds(worlds, len(outputs))
    epsilon, delta = claim.exact
    process, points = watch(epsilon, delta, isotonic=isotonic), []
    for runs in _looks(len(truth)):
        part = slice(process.runs, runs)
        process = process.update(outputs[part], truth[part])
        refuted = process.rejected_at(alpha) is not None
        points.append((runs, capped(process.epsilon_lower(alpha, delta), claim, refuted=refuted)))
    return Trace(claim=claim, alpha=alpha, holds="together", points=tuple(points))


def _prefixes(runs: int) -> list[int]:
    if runs <= _FIRST_POINT:
        return [runs] if runs else []
    ratio = runs / _FIRST_POINT
    return sorted({round(_FIRST_POINT * ratio ** (k / (_POINTS - 1))) for k in range(_POINTS)})


def _looks(runs: int) -> list[int]:
    looks = [look for look in LOOKS if _FIRST_POINT <= look < runs]
    apart = -(-len(looks) // _POINTS) if looks else 1
    return [*looks[::-1][::apart][::-1], runs] if runs else []
