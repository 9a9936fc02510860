r"""The policy CUCB and its private versions (Chen, Zheng, Zhou, Yang, Chen and Wang, 2020).

``cucb`` is not private (Chen, Wang and Yuan 2013). The private versions are those of the 2020
paper. In ``cucb-ldp1`` (Algorithm 1) users send all outcomes of the played super arm with noise. In
``cucb-ldp2`` (Algorithm 2) they send only the outcome of its least pulled base arm. In ``cucb-dp``
(Algorithm 3) a trusted server keeps private running sums. ``cucb-dp2`` also uses only the least
pulled base arm (end of Section 3.2). ``bandits.play_combinatorial`` plays the policies.

A *bonus* is added to the estimated mean of a base arm to obtain an upper confidence bound. Let T be
the horizon. The ``exact`` bonus is the sum of two bounds: Hoeffding's inequality for the outcomes,
with failure probability T^-2, and Chernoff's bound for the noise of the released sum, with failure
probability T^-2 (T^-3 for a tree). Chernoff's bound uses the exact moment generating function of
the noise and the number of draws in the sum. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import numpy as np

from bandits.batch import arms_and_horizon
from bandits.combinatorial_rewards_and_oracles import Problem
from bandits.elimination_radii import RadiusName
from bandits.privatizers.continual_sums_per_arm import (
    StreamPrivatizer,
    StreamRelease,
    StreamTrust,
    inverse,
)
from bandits.privatizers.deployment import NO_NOISE
from bandits.privatizers.run_guarantee import RunGuarantee
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.arrays import Floats, Integers
from dpcore.numbers.parameter import Exact, Of, RationalLike, Whole, check_fields, rational
from dpcore.spec_syntax import word

CucbName: TypeAlias = Literal["cucb", "cucb-ldp1", "cucb-ldp2", "cucb-dp", "cucb-dp2"]

FAMILY: Final[dict[CucbName, tuple[StreamTrust, str]]] = {
    "cucb": ("none", "upper confidence bounds of base arms, without privacy"),
    "cucb-ldp1": ("local", "cucb where every user adds discrete Laplace noise to all outcomes"),
    "cucb-ldp2": ("local", "cucb-ldp1 for only the least-pulled base arm"),
    "cucb-dp": ("central", "cucb where a trusted server adds noise to running sums"),
    "cucb-dp2": ("central", "cucb-dp for only the least-pulled base arm"),
}
r"""The algorithms, each with its trust model and a description."""

_LEAST: Final = ("cucb-ldp2", "cucb-dp2")
_SMALLEST_C: Final = 2


@dataclass(frozen=True, slots=True)
class Cucb:
    r"""The CUCB variant ``name`` for ``problem``, calibrated to ``epsilon`` for ``horizon`` rounds.

    In each round it plays the super arm that the oracle chooses for the upper confidence bounds,
    which are clipped at ``clip``. ``delta`` is used only by the factorisation. The constant ``c``
    scales the paper's bonus for local noise. The class is also available as ``cucb``.
    """

    name: CucbName = word(CucbName)
    problem: Of[Problem] = Of(Problem, "must be a Problem")
    _: KW_ONLY
    horizon: Whole = Whole()
    epsilon: Exact = Exact(1, zero=NO_NOISE)
    delta: Exact = Exact("1e-6", within="(0, 1)")
    release: StreamRelease = word(StreamRelease, "tree")
    radius: RadiusName = word(RadiusName, "exact")
    c: Exact = Exact(4, zero="c scales the bonus")
    clip: Exact = Exact(1, zero="clip bounds the estimates")

    def __post_init__(self) -> None:
        check_fields(self)
        arms_and_horizon(self.problem.arms, self.privatizer.horizon)
        if self.c < _SMALLEST_C:
            reason = "must be >= 2, because smaller values can exclude good arms forever"
            raise InvalidParameter("c", self.c, reason)

    @property
    def least(self) -> bool:
        r"""Whether a user sends only the outcome of the least observed base arm."""
        return self.name in _LEAST

    @property
    def privatizer(self) -> StreamPrivatizer:
        return StreamPrivatizer(
            trust=FAMILY[self.name][0],
            epsilon=self.epsilon,
            sent=1 if self.least else self.problem.most,
            horizon=self.horizon,
            release=self.release,
            delta=self.delta,
        )

    def bonuses(self) -> Floats:
        r"""The bonus for the mean of n outcomes of a base arm, for n = 0, ..., ``horizon``."""
        return bonus_table(self.privatizer, self.problem.arms, self.radius, self.c)

    def guarantee(self) -> RunGuarantee | None:
        r"""The guarantee for each user, who takes part in one round; None without privacy."""
        found = self.privatizer.guarantee()
        if found is None:
            return None
        return RunGuarantee(parts=(found,), assumptions=self.privatizer.assumed())


cucb = Cucb
r"""An alias of :class:`Cucb`, which the documentation uses."""

_GRID: Final = 256
_SLACK: Final = 1 + 1e-6
_PIECE: Final = 1 << 14
_OUTCOMES: Final = 2
_SUMS: Final = {"tree": 3}


@lru_cache(maxsize=16)
def bonus_table(
    privatizer: StreamPrivatizer, arms: int, radius: RadiusName, c: RationalLike
) -> Floats:
    r"""The bonus for the mean of n outcomes, for n = 0, ..., T; it is infinite for n = 0."""
    horizon = privatizer.horizon
    n, log = np.arange(1, horizon + 1, dtype=np.int64), math.log(horizon)
    found = np.full(horizon + 1, np.inf)
    if radius == "exact":
        noise = np.zeros(horizon)
        for start in range(0, horizon, _PIECE):
            noise[start : start + _PIECE] = _noise(privatizer, n[start : start + _PIECE], log)
        found[1:] = np.sqrt(_OUTCOMES * log / (2 * n)) + noise / n
    else:
        found[1:] = _paper(privatizer, arms, n, log, c)
    found.flags.writeable = False
    return found


def _paper(
    privatizer: StreamPrivatizer, arms: int, n: Integers, log: float, c: RationalLike
) -> Floats:
    # The bonuses of CUCB (Chen et al. 2013) and Algorithms 1 to 3, with K = ``sent``.
    epsilon, sent = float(privatizer.epsilon), privatizer.sent
    match privatizer.trust:
        case "none":
            found = np.sqrt(3 * log / (2 * n))
        case "local":
            found = float(rational("c", c)) * sent * np.sqrt(log / (epsilon**2 * n))
        case _:
            own = math.log(arms * privatizer.horizon)
            found = np.sqrt(4 * own / n) + 12 * sent * log**3 / (n * epsilon)
    return np.asarray(found)


def _noise(privatizer: StreamPrivatizer, n: Integers, log: float) -> Floats:
    # An upper bound on the noise of a released sum of n outcomes, with high probability.
    law, rare = privatizer.noise, _SUMS.get(privatizer.kind, 2) * log
    if isinstance(law, DiscreteGaussian):
        # The variance proxy of a draw is sigma^2; proxies of independent terms are added.
        squares = np.cumsum(inverse(privatizer.items, privatizer.grid) ** 2)
        size = squares[np.maximum(n // privatizer.block, 1) - 1]
        return np.asarray(np.sqrt(2 * rare * float(law.sigma_squared) * size) * _SLACK)
    if not isinstance(law, DiscreteLaplace):
        return np.zeros(len(n))
    draws = n  # the number of noise draws in the released sum of n outcomes
    if privatizer.kind == "tree":
        draws = np.bitwise_count(n).astype(np.int64)
    elif privatizer.kind == "doubling":
        draws = np.frexp(n.astype(np.float64))[1].astype(np.int64)
    return laplace_quantile(draws, float(law.scale), rare)


def laplace_quantile(draws: Integers, scale: float, rare: float) -> Floats:
    r"""Return q with P(sum of d discrete Laplace draws >= q) <= e^-rare, for each d in ``draws``.

    q is the smallest value of (d ln M(s) + rare)/s over a grid of s > 0, where M is the moment
    generating function of one draw. Every s gives a valid q, so the grid affects only the size of
    q.
    """
    if not scale > 0:
        raise InvalidParameter("scale", scale, "must be > 0")
    best = np.full(draws.shape, np.inf)
    a = math.exp(-1 / scale)
    for share in np.linspace(0, 1, _GRID + 2)[1:-1] ** 2:
        s = share / scale
        up, down = -math.expm1(s - 1 / scale), -math.expm1(-s - 1 / scale)
        log_mgf = 2 * math.log1p(-a) - math.log(up) - math.log(down)
        np.minimum(best, (draws * log_mgf + rare) / s, out=best)
    return best * _SLACK
