r"""The matrix mechanism: training or streams with noise that is correlated between rounds.

Let x be the matrix whose row x_t is the sum of round t, and z fresh noise of the same shape. For
matrices B and C, B(C x + z) is released row by row. B C is the workload: prefix sums, possibly with
momentum or weight decay. All rounds together cost as much privacy as one release of C x + z. With
Gaussian noise this is one Gaussian mechanism with the sensitivity of C x. Proofs:
docs/proofs/continual.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

from accounting.descriptions.real_noise import Gaussian
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import check_width, order_above_one
from accounting.privacy_curves.dominating_pairs import DominatingPairs
from accounting.privacy_curves.real_gaussian_closed_form import NormalLoss
from accounting.privacy_curves.release_curve import ByOrder, OneRelease
from accounting.strategy_matrices import (
    Participation,
    SquaredSensitivity,
    Strategy,
    squared_sensitivity,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import InScope, Norm, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, End
from dpcore.numbers.parameter import Of, RationalLike, check_fields

_BITS: Final = 64
_THEOREM: Final = (
    "one Gaussian with the sensitivity of the strategy, inputs chosen adaptively (Denisov et al. "
    "2022; Choquette-Choo et al. 2023)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixMechanism:
    r"""The release of C x + z with fresh noise z, and any post-processing of it.

    C is the ``strategy``, row t of x is the sum of round t, and z has the law ``noise``. One
    participation of a unit changes a row of x by at most ``sensitivity`` in l2 norm, in any number
    of coordinates. ``participation`` restricts the rounds of a unit. Under ``replace`` the other
    unit takes part in the same rounds; under ``add-remove`` all other units take part in the same
    rounds as before. The values and the rounds of a unit may depend on earlier releases.

    >>> from accounting.strategy_matrices import Banded
    >>> from accounting.derive_guarantee import guarantee
    >>> training = MatrixMechanism(
    ...     strategy=Banded(rounds=2052, bands=342),
    ...     participation=Participation(most=6, apart=342),
    ...     noise=Gaussian(sigma=4),
    ... )
    >>> guarantee(training).epsilon("1e-6")
    Bound([5.14928409056672..., 5.14928409056672...], 'exact')

    Raises :class:`InvalidParameter` if an argument has another type, if the sensitivity is neither
    one number nor l2-squared, or if integer noise is used with a strategy that has non-integer
    entries.
    """

    strategy: Of[Strategy] = Of(Strategy, "must be a Strategy")
    noise: Gaussian | DiscreteGaussian
    participation: Of[Participation] = Of(Participation, "must be a Participation", Participation())
    sensitivity: Sensitivity | int = 1
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.noise, (Gaussian, DiscreteGaussian)):
            raise InvalidParameter("noise", self.noise, "must be Gaussian or DiscreteGaussian")
        moves = Sensitivity.of(self.sensitivity)
        if moves.norm not in (Norm.ABSOLUTE, Norm.L2_SQUARED):
            raise InvalidParameter("sensitivity", moves, "must be one number, or in the l2 norm")
        object.__setattr__(self, "sensitivity", moves)
        if isinstance(self.noise, DiscreteGaussian) and not self.strategy.integral:
            raise InvalidParameter(
                "strategy",
                self.strategy.written,
                "must have integer entries for discrete noise, e.g. square-root:grid=64",
            )

    @property
    def moved(self) -> SquaredSensitivity:
        r"""The squared l2 sensitivity of C x if a participation moves a row of x by at most 1."""
        return squared_sensitivity(self.strategy, self.participation)

    @property
    def variances(self) -> tuple[Fraction, Fraction]:
        r"""Bounds (lower, upper) on D^2/sigma^2, where D is the l2 sensitivity of C x."""
        moves = Sensitivity.of(self.sensitivity)
        amount = moves.amount
        assert isinstance(amount, int)  # noqa: S101  # it is not a box
        step = amount if moves.norm is Norm.L2_SQUARED else amount * amount
        noise = self.noise
        sigma_squared = (
            noise.variance if isinstance(noise, Gaussian) else Fraction(noise.sigma_squared)
        )
        found = self.moved.squared
        return step * Fraction(found.lower) / sigma_squared, step * Fraction(
            found.upper
        ) / sigma_squared

    def to_json(self) -> dict[str, Any]:
        r"""All arguments as JSON, with numbers as text."""
        return {
            "strategy": self.strategy.to_json(),
            "participation": {"most": self.participation.most, "apart": self.participation.apart},
            "noise": self.noise.to_json(),
            "sensitivity": Sensitivity.of(self.sensitivity).to_json(),
            "scope": self.scope.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneMatrix(OneRelease):
    mechanism: MatrixMechanism

    @property
    def description(self) -> None:
        return None

    @property
    def scope(self) -> Scope:
        return self.mechanism.scope

    def to_json(self) -> dict[str, Any]:
        return {"claim": "matrix", **self.mechanism.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCurve(_OneMatrix):
    r"""The privacy curve of a :class:`MatrixMechanism` with real-valued Gaussian noise.

    It is exact if the sensitivity is known exactly. Otherwise the lower bound is that of one
    pattern of participations, and the upper bound uses an upper bound on the sensitivity over all
    patterns.
    """

    theorem: ClassVar[str] = _THEOREM

    @property
    def assumptions(self) -> tuple[str, ...]:
        noise = self.mechanism.noise
        return (noise.assumption,) if isinstance(noise, Gaussian) else ()

    def losses(self) -> tuple[NormalLoss, NormalLoss]:
        r"""A loss that some neighbours attain, and one that dominates those of all neighbours."""
        low, high = self.mechanism.variances
        return NormalLoss(variance=low), NormalLoss(variance=high)

    def dominating_pairs(self) -> DominatingPairs:
        low, high = self.losses()
        return DominatingPairs(above=(((high, 1),),), attained=(((low, 1),),))

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        del bits
        at = order_above_one(order)
        return Enclosure(*(loss.renyi(at) for loss in self.losses()))

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        return self._both(Enclosure(*(loss.variance / 2 for loss in self.losses())))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOrders(ByOrder, _OneMatrix):
    r"""The privacy of a :class:`MatrixMechanism` with integer noise, from its Renyi divergences.

    It is zCDP with rho = D^2/(2 sigma^2), where D is the l2 sensitivity of C x. The integer vector
    by which neighbours differ may depend on earlier releases, and no single pair dominates all
    choices. The Renyi divergences of the rounds add, however, for every choice.
    """

    theorem: ClassVar[str] = (
        "rho = D^2/(2 sigma^2) (Canonne, Kamath and Steinke 2020, Theorem 14), inputs chosen "
        "adaptively, and the best order"
    )

    def most_renyi(self, order: Fraction) -> End:
        return order * self.mechanism.variances[1] / 2

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        # Attained at integer orders.
        check_width(relative)
        low, high = self.mechanism.variances
        return Bound.of(Enclosure(low / 2, high / 2), "exact", self.theorem)
