r"""Where to look first: the curve of real Gaussian noise, in floats.

Totals of many losses are nearly Gaussian, so the mu = Delta/sigma that has the same delta at the
same epsilon says how much noise there is in effect. Numbers from here are proposals: nothing that
is reported rests on them.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["log_delta", "log_mu"]

_SHORT: Final = 1e-6
_FAR: Final = 1e4
_FARTHEST: Final = 75.0
_HALVINGS: Final = 60


def log_delta(mu: float, epsilon: float) -> float:
    r"""log(Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)) (Balle and Wang 2018).

    >>> round(math.exp(log_delta(1.0, 1.0)), 6)
    0.126937
    """
    from scipy.special import log_ndtr  # here, not above: importing accounting stays fast

    place = epsilon / mu
    first = float(log_ndtr(mu / 2 - place))
    if mu > _SHORT:
        ratio = epsilon + float(log_ndtr(-mu / 2 - place)) - first
    else:
        # The logarithm of a ratio of Mills' ratios at two near places: its slope times mu.
        density = -place * place / 2 - math.log(2 * math.pi) / 2
        ratio = mu * (place - math.exp(density - first) if place < _FAR else -1 / place)
    return first + math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf


def log_mu(epsilon: float, logarithm: float) -> float:
    r"""The log mu at which delta(``epsilon``) has this ``logarithm``; more noise is a smaller mu.

    >>> round(math.exp(log_mu(1.0, log_delta(1.0, 1.0))), 9)
    1.0
    """
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if log_delta(math.exp(middle), epsilon) < logarithm:
            low = middle
        else:
            high = middle
    return (low + high) / 2
