r"""Hard instances of Chen et al. (2020), and the regret that no algorithm falls below in them.

Theorem 5: a multi-armed bandit, one base arm at a time. Theorem 6: m/K disjoint paths, of base arms
that are equal within a path. Theorem 9: one best super arm of K base arms of its own, and others
that share K - 1 public base arms and have one more each. All means are 1/2 or 1/2 less a gap.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from bandits.combinatorial.decisions import Listed, Unions
from bandits.combinatorial.problem import Problem
from bandits.worlds.combinatorial import BitWorld, combinatorial_preset
from bandits.worlds.preset import Preset, SuperArms
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, positive_rational

__all__ = ["GAP", "HARD_MAB", "HARD_PATHS", "HARD_PUBLIC", "LowerBound", "lower_bound"]

GAP: Final = 0.2
r"""How far a mean lies below 1/2, less than 0.35 as the theorems need."""

_MIDDLE: Final = 0.5


class LowerBound(NamedTuple):
    r"""``regret`` is the constant of the theorem times ln T: the paper's, for T to infinity."""

    theorem: str
    regret: float
    of: str


def hard_mab(seed: int, arms: int, size: int) -> BitWorld:
    r"""Theorem 5: m super arms of one base arm, the best of mean 1/2.

    Raises :class:`InvalidParameter` for super arms of more than one.
    """
    if size != 1:
        raise InvalidParameter("super_arm", size, "must be 1: Theorem 5 is of single base arms")
    return _paths(seed, arms, 1)


def hard_paths(seed: int, arms: int, size: int) -> BitWorld:
    r"""Theorem 6: m/K disjoint paths, one outcome for all base arms of a path.

    Raises :class:`InvalidParameter` where m/K is no integer.
    """
    return _paths(seed, arms, size)


def hard_public(seed: int, arms: int, size: int) -> BitWorld:
    r"""Theorem 9: S* of K base arms, and m - 2K + 1 super arms of K - 1 public ones and one more.

    Public base arms have one outcome in common. All means but those of S* are 1/2 less the gap.

    Raises :class:`InvalidParameter` for m < 2K.
    """
    if arms < 2 * size:
        raise InvalidParameter(
            "arms", arms, f"must be >= 2 super_arm = {2 * size}, as in Theorem 9"
        )
    order = np.random.RandomState(seed).permutation(arms - 2 * size + 1).tolist()
    best, public = tuple(range(size)), tuple(range(size, 2 * size - 1))
    others = tuple((*public, 2 * size - 1 + each) for each in sorted(order))
    problem = Problem(decisions=Listed(arms, (best, *others)))
    together = tuple(size if arm in public else arm for arm in range(arms))
    chances = (_MIDDLE,) * size + (_MIDDLE - GAP,) * (arms - size)
    return BitWorld(of=problem, chances=chances, together=together)


def _paths(seed: int, arms: int, size: int) -> BitWorld:
    if arms % size:
        raise InvalidParameter("super_arm", size, f"must divide arms = {arms}")
    count = arms // size
    groups = tuple(tuple(range(start, start + size)) for start in range(0, arms, size))
    problem = Problem(decisions=Unions(groups, 1))
    best = int(np.random.RandomState(seed).randint(count))
    chances = tuple(_MIDDLE - GAP * (arm // size != best) for arm in range(arms))
    return BitWorld(of=problem, chances=chances, together=tuple(arm // size for arm in range(arms)))


def lower_bound(
    preset: str, *, arms: int, super_arm: int, horizon: int, epsilon: RationalLike
) -> LowerBound | None:
    r"""What regret is at least in that preset, in the limit; None where no theorem says.

    Theorem 9 has no constant: of its lower bound only the order m K (1/Delta + 1/epsilon) ln T is
    given, here with the constant 1.

    >>> found = lower_bound("csb/hard-paths", arms=20, super_arm=4, horizon=10**5, epsilon="1/2")
    >>> found.theorem, round(found.regret, 1)
    ('Theorem 6', 34.2)

    Raises :class:`InvalidParameter` for epsilon not > 0.
    """
    exact = positive_rational("epsilon", epsilon, "no noise gives epsilon 0")
    m, k, log = arms, super_arm, math.log(horizon)
    delta = GAP * k  # of a super arm: each of its base arms is below by the gap
    local = 64 * math.expm1(float(min(exact, Fraction(300)))) ** 2
    match preset:
        case "csb/hard-mab":
            found = LowerBound("Theorem 5", (m - 1) / (local * delta) * log, "consistent, local")
        case "csb/hard-paths":
            regret = (m - k) * k / (local * delta) * log
            found = LowerBound("Theorem 6", regret, "consistent, local")
        case "csb/hard-public":
            order = m * k * (1 / delta + 1 / float(exact)) * log
            found = LowerBound("Theorem 9", order, "consistent, private; order only")
        case _:
            return None
    return found


_WORDS: Final = "means 0.5 and 0.3"
HARD_MAB: Final = combinatorial_preset(
    "csb/hard-mab", f"single base arms, {_WORDS} (CSB, Theorem 5)", SuperArms(hard_mab), 20, 1
)
HARD_PATHS: Final = combinatorial_preset(
    "csb/hard-paths", f"disjoint paths, {_WORDS} (CSB, Theorem 6)", SuperArms(hard_paths), 20, 4
)
HARD_PUBLIC: Final[Preset] = combinatorial_preset(
    "csb/hard-public", f"shared base arms, {_WORDS} (CSB, Theorem 9)", SuperArms(hard_public), 20, 4
)
