r"""Returning users: one guarantee for all their visits, and batches released in parts.

This module calibrates the least noise that is certified to give (epsilon, delta) over B releases
with one law (``accounting.calibration.calibrate``), for elimination with releases of at most half
of the users. A release needs a different user for each reward. A batch that pulls every active arm
l times is split into m releases per arm, none with more than ``most`` users, and the policy adds
them up: the sum has l rewards and m independent noise terms (``BatchedElimination.most``). Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from accounting.calibration.calibrate import calibrate
from accounting.composition.returning_users import per_user
from accounting.errors import NotDerived
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.policies.policy_settings import Setting
from bandits.privatizers.deployment import EVERYONE, Deployment
from bandits.privatizers.returning_users import SteadyLaw, SteadyPrivatizer, visits_of
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.numbers.parameter import RationalLike, rational

STEPS: Final = 16
r"""The largest g of a steady release: rounding adds at most 1/1024 per reward to the variance."""

_BITS: Final = "binomial:probability=1/2"
_GAUSSIAN: Final = "discrete-gaussian"
_LAWS: Final = {
    "dist-dp-se": "discrete-laplace",
    "dist-rdp-se": "skellam",
    "dist-cdp-se": _GAUSSIAN,
    "sdp-ae": _BITS,
    "vb-sdp-ae": _BITS,
}
RETURNING: Final = tuple(_LAWS)
r"""The noise laws of algorithms whose releases can all have the same law."""

_MOST_MASKED: Final = (1 << 16) - 1
_WIDE: Final = 1 << 18
_MOST_SHARES: Final = 1 << 10
_GRID: Final = 1 << 20
_NEAR: Final = Fraction(1, 1000)
_MORE: Final = tuple(Fraction(n, 1000) for n in (1003, 1020, 1200, 2000, 4000))


def steady_for(
    algorithm: str,
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    max_visits: int,
    failure: RationalLike,
    deployment: Deployment = EVERYONE,
) -> SteadyPrivatizer:
    """Calibrate an algorithm's least noise for (epsilon, delta) over ``max_visits`` releases."""
    if algorithm not in _LAWS:
        reason = f"does not support returning users; use one of {', '.join(_LAWS)}"
        raise InvalidParameter("algorithms", algorithm, reason)
    e, d, most = rational("epsilon", epsilon), rational("delta", delta), visits_of(max_visits)
    law, steps = _law(_LAWS[algorithm], e, d, most)
    return SteadyPrivatizer(law=law, steps=steps, failure=failure, deployment=deployment)


@lru_cache(maxsize=1 << 8)
def _law(law: str, epsilon: Fraction, delta: Fraction, max_visits: int) -> tuple[SteadyLaw, int]:
    def least(noise: str, steps: int) -> Any:
        return calibrate(
            noise=noise, epsilon=epsilon, delta=delta, rounds=max_visits, sensitivity=steps
        ).noise

    if law == _BITS:
        return least(law, 1), 1
    steps = STEPS
    gaussian = least(_GAUSSIAN, steps)
    while gaussian.sigma_squared > _WIDE and steps > 1:
        # With this much noise, coarser rounding is also negligible, and bounding the law takes less
        # time.
        steps //= 2
        gaussian = least(_GAUSSIAN, steps)
    if law != _GAUSSIAN:
        return least(law, steps), steps
    # Each term has variance at least 1, so the sum is as good as one Gaussian of slightly smaller
    # variance.
    count = min(max(math.floor(gaussian.sigma_squared), 1), _MOST_SHARES)
    for more in _MORE:
        share = Fraction(math.ceil(gaussian.sigma_squared * more * _GRID / count), _GRID)
        found = DiscreteGaussianSum(count=count, sigma_squared=share)
        visit = PrivacyCurve(noise=found, sensitivity=steps)
        if per_user(visit, max_visits=max_visits).epsilon(delta, _NEAR).upper <= epsilon:
            return found, steps
    raise NotDerived("a sum of discrete Gaussians with this guarantee", "use a larger delta")


def steady_of(algorithm: str, setting: Setting) -> SteadyPrivatizer:
    r"""The privatizer of ``algorithm`` for the returning users of ``setting``."""
    return steady_for(
        algorithm,
        epsilon=setting.epsilon,
        delta=setting.delta,
        max_visits=visits_of(setting.max_visits),
        # A batch may be released in many parts, each of which may be decoded incorrectly.
        failure=setting.failure / setting.horizon,
        deployment=setting.deployment,
    )


def most_users(setting: Setting) -> int:
    r"""The largest number of users in a release: half of all users, and at most the limit of masked
    aggregation.
    """
    visits = visits_of(setting.max_visits)
    most = max((setting.users or -(-setting.horizon // visits)) // 2, 1)
    return min(most, _MOST_MASKED) if setting.deployment.aggregation == "masked" else most
