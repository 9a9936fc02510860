r"""How far above its estimate the mean of a base arm may be: exact from the noise, or the paper's.

``exact``: the outcomes by Hoeffding's inequality, at failure T^-2, and the noise of the released
sum by Chernoff's with the moment generating function of its very law, at failure T^-2, and T^-3 for
a tree, as many draws as are in the sum. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from bandits.combinatorial.streams import StreamPrivatizer
from bandits.combinatorial.totals import inverse
from bandits.radius.radius import RadiusName
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.arrays import Integers
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import RationalLike, rational

__all__ = ["bonus_table", "laplace_quantile"]

_GRID: Final = 256
_SLACK: Final = 1 + 1e-6
_PIECE: Final = 1 << 14
_OUTCOMES: Final = 2
_SUMS: Final = {"tree": 3}


@lru_cache(maxsize=16)
def bonus_table(
    privatizer: StreamPrivatizer, arms: int, radius: RadiusName, c: RationalLike
) -> Floats:
    r"""What is added to the mean of n outcomes, for n = 0, ..., T; infinite at 0.

    >>> plain = StreamPrivatizer(trust="none", sent=2, horizon=100)
    >>> print(round(bonus_table(plain, 4, "exact", 4)[25], 4))  # sqrt(ln(100)/25)
    0.4292
    """
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
    # CUCB is Chen et al. (2013); Algorithms 1 to 3, with K = ``sent``.
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
    # What the noise of a released sum of n outcomes stays below.
    law, rare = privatizer.noise, _SUMS.get(privatizer.kind, 2) * log
    if isinstance(law, DiscreteGaussian):
        # Its variance proxy is sigma^2; those of fixed multiples add up.
        squares = np.cumsum(inverse(privatizer.items, privatizer.grid) ** 2)
        size = squares[np.maximum(n // privatizer.block, 1) - 1]
        return np.asarray(np.sqrt(2 * rare * float(law.sigma_squared) * size) * _SLACK)
    if not isinstance(law, DiscreteLaplace):
        return np.zeros(len(n))
    return laplace_quantile(_draws(privatizer, n), float(law.scale), rare)


def _draws(privatizer: StreamPrivatizer, n: Integers) -> Integers:
    # How many draws are in the released sum of n outcomes.
    match privatizer.kind:
        case "tree":
            return np.bitwise_count(n).astype(np.int64)
        case "doubling":
            return np.frexp(n.astype(np.float64))[1].astype(np.int64)
        case _:
            return n


def laplace_quantile(draws: Integers, scale: float, rare: float) -> Floats:
    r"""q with P(sum of so many discrete Laplace draws >= q) <= e^-rare, for each count of draws.

    The least (d ln M(s) + rare)/s over a grid of s, M the moment generating function: each s gives
    such a q, so the grid decides only how good it is.

    >>> laplace_quantile(np.array([1]), 1.0, 10.0).round(1)
    array([12.8])

    Raises :class:`InvalidParameter` for a scale not > 0.
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
