r"""Calibrate the noise of running sums of a stream to a guarantee, and compute the error.

The three mechanisms of ``dpcore.continual_sums`` are calibrated to the same (epsilon, delta). The
errors of their sums are enclosed, from the coefficients and the variance of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from accounting.calibration.calibrate_noise_rounds_or_rate import Calibration, calibrate
from accounting.guarantees.bound import Bound
from dpcore.continual_sums import ContinualSum, DoublingSum, SquareRootSum, TreeSum
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Scope
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import RationalLike, integer, rational
from dpcore.parse_noise import write_noise
from dpcore.spec_syntax import find_name

MECHANISMS: Final[dict[str, type[ContinualSum]]] = {
    kind.name: kind for kind in (TreeSum, DoublingSum, SquareRootSum)
}
r"""The mechanisms for running sums by name: tree, doubling, square-root."""

MOST_COMPARED: Final = SquareRootSum.most
r"""The largest horizon for which the error of every sum is computed."""

_ANY: Final = DiscreteLaplace(scale=1)
_SCOPE: Final = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSum:
    r"""A mechanism for running sums with calibrated noise; ``setting.start()`` runs it.

    The mechanism releases a noisy sum after each item, for ``horizon`` items. ``mean`` and
    ``largest`` enclose the mean and the maximum of the squared errors E[(released value - sum)^2]
    over these sums. A released sum may omit the latest items. ``behind`` is the largest number of
    omitted items, which the errors do not include.
    """

    setting: ContinualSum
    calibration: Calibration
    mean: Enclosure
    largest: Enclosure
    behind: int

    def to_json(self) -> dict[str, Any]:
        r"""The result as JSON. Each error is a lower and an upper bound, rounded outwards."""
        setting, found = self.setting, self.calibration
        grid = {"grid": setting.grid} if isinstance(setting, SquareRootSum) else {}
        return {
            "mechanism": setting.name,
            "noise": setting.noise.to_json(),
            **grid,
            "draws_moved": len(setting.moves),
            "epsilon": found.epsilon_at_delta().to_json(),
            "delta": str(found.delta),
            "mean_squared_error": _ends(self.mean),
            "largest_squared_error": _ends(self.largest),
            "items_behind": self.behind,
        }

    @property
    def noise(self) -> str:
        r"""The noise in the syntax of the commands."""
        return write_noise(self.setting.noise)


def _ends(found: Enclosure) -> dict[str, Any]:
    return Bound.of(found, "", "").to_json()


def calibrate_sum(
    mechanism: str,
    *,
    horizon: int,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    scope: Scope = _SCOPE,
    **items: RationalLike,
) -> CalibratedSum:
    r"""Calibrate the mechanism named ``mechanism`` to (epsilon, delta), with the least noise.

    The noise is discrete Laplace if delta = 0. Otherwise it is discrete Laplace or discrete
    Gaussian, whichever has the smaller mean squared error. ``items`` are the arguments ``low``,
    ``high`` and ``unit`` of the mechanism.
    """
    kind = find_name("mechanism", mechanism, MECHANISMS)
    integer("horizon", horizon, at_least=1, at_most=MOST_COMPARED)
    setting = kind(horizon=horizon, noise=_ANY, scope=scope, **items)
    pure = rational("delta", delta) == 0
    candidates = [("discrete-laplace", Fraction(0))]
    candidates += [] if pure else [("discrete-gaussian", rational("delta", delta))]
    found = [
        _with_noise(
            setting,
            calibrate(noise=law, epsilon=epsilon, delta=at, sensitivity=setting.sensitivity),
        )
        for law, at in candidates
    ]
    return min(found, key=lambda each: each.mean.upper)


def compare_sums(
    *, horizon: int, epsilon: RationalLike, delta: RationalLike = 0, **items: Any
) -> Iterator[CalibratedSum]:
    r"""Apply :func:`calibrate_sum` to each mechanism for running sums, with the same arguments."""
    for name in MECHANISMS:
        yield calibrate_sum(name, horizon=horizon, epsilon=epsilon, delta=delta, **items)


def _with_noise(setting: ContinualSum, found: Calibration) -> CalibratedSum:
    noise = found.noise
    if not isinstance(noise, Noise):
        raise InvalidParameter("noise", noise, "must be integer-valued")
    calibrated = replace(setting, noise=noise)
    times = range(1, setting.horizon + 1)
    errors = [calibrated.mean_squared_error(taken) for taken in times]
    low, high = zip(*((Fraction(e.lower), Fraction(e.upper)) for e in errors), strict=True)
    return CalibratedSum(
        setting=calibrated,
        calibration=found,
        mean=Enclosure(sum(low) / len(low), sum(high) / len(high)),
        largest=Enclosure(max(low), max(high)),
        behind=max(taken - setting.covered(taken) for taken in times),
    )
