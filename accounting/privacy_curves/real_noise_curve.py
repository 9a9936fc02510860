r"""The privacy curve of real-valued Gaussian or Laplace noise, assuming exact sampling.

Floating-point code does not sample such noise exactly. Every bound on such noise, and on
compositions that contain it, lists the assumption. Proofs: docs/proofs/cells.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final

from flint import arb

from accounting.descriptions.real_noise import Gaussian, Laplace, RealNoise
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import check_width, order_above_one, probability
from accounting.pairs.enclose_curve import narrowed, supremum_over_orders, within
from accounting.pld.noise_density import Density, LaplaceDensity, NormalDensity
from accounting.pld.real_cells import RealPair
from accounting.privacy_curves.dominating_pairs import DominatingPairs
from accounting.privacy_curves.real_gaussian_closed_form import NormalLoss
from accounting.privacy_curves.release_curve import OneRelease
from dpcore.errors import InvalidParameter
from dpcore.mechanism import InScope, Norm, Sensitivity
from dpcore.numbers.enclosure import Enclosure, ball
from dpcore.numbers.parameter import RationalLike, at_least_zero, check_fields

_BITS: Final = 64
_THEOREMS: Final[dict[type[RealNoise], str]] = {
    Gaussian: "the curve of the noise (Balle and Wang 2018, Theorem 8)",
    Laplace: "the curve of the noise",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RealCurve(OneRelease):
    r"""The exact curve of a query with real-valued noise, assuming ideal sampling.

    Gaussian noise with an l2 sensitivity costs the same in any number of coordinates; for Laplace
    noise the sensitivity must be one number or in l1.

    >>> curve = RealCurve(noise=Gaussian(sigma=1), sensitivity=1)
    >>> curve.delta(1)
    Bound([0.12693673750664394, 0.12693673750664395], 'exact')
    >>> curve.delta(1).assumptions == curve.assumptions != ()
    True

    Raises :class:`InvalidParameter` if ``noise`` is not a :class:`RealNoise` or its scale is far
    below the sensitivity, and :class:`NotDerived` for Laplace noise with another norm.
    """

    noise: RealNoise
    sensitivity: Sensitivity | int
    scope: InScope = InScope(groups=True)
    theorem: ClassVar[str] = "the curve of the noise; Balle and Wang 2018, Theorem 8"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, (Gaussian, Laplace)):
            raise InvalidParameter("noise", self.noise, "must be Gaussian or Laplace")
        check_fields(self)
        object.__setattr__(self, "sensitivity", Sensitivity.of(self.sensitivity))
        Sensitivity.of(self.sensitivity).shared(self.scope.group)
        if isinstance(self.noise, Laplace) and self._spread() > _MOST_SPREAD:
            reason = f"must be at least the sensitivity divided by {_MOST_SPREAD}"
            raise InvalidParameter("scale", self.noise.scale, reason)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (self.noise.assumption,)

    @property
    def density(self) -> Density:
        r"""The density of the noise, where the sensitivity is the unit of length."""
        if isinstance(self.noise, Gaussian):
            moves = Sensitivity.of(self.sensitivity)
            return NormalDensity(Fraction(self.noise.sigma) ** 2 / moves.squared)
        return LaplaceDensity(self._spread())

    def loss(self) -> NormalLoss | None:
        r"""The privacy loss of one release of Gaussian noise; None for Laplace noise."""
        density = self.density
        return (
            NormalLoss(variance=1 / density.variance)
            if isinstance(density, NormalDensity)
            else None
        )

    def pair(self, rate: Fraction = Fraction(1)) -> RealPair:
        r"""The pair of output laws of one release, with Poisson sampling if ``rate`` < 1."""
        return RealPair.sampled(self.density, rate)

    @property
    def in_floats(self) -> bool:
        r"""Whether the losses of a composition can be represented in float64.

        This is so if the sensitivity is between 1e-15 and 1e10 times the scale of the noise. A
        single round of one unit has a closed form at every scale.
        """
        loss = self.loss()
        size = loss.variance if loss else self._spread() ** 2
        return _LEAST_SQUARE <= size <= _MOST_SQUARE

    def check_size(self) -> None:
        r"""Raise :class:`InvalidParameter` unless :attr:`in_floats` holds."""
        if not self.in_floats:
            must = "must be between 1e-10 and 1e15 times the sensitivity"
            name = "sigma" if isinstance(self.noise, Gaussian) else "scale"
            raise InvalidParameter(name, getattr(self.noise, name), must)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        at = at_least_zero("epsilon", epsilon)
        loss = self.loss()
        if loss:
            return loss.delta(at, bits)
        if at >= self._spread():
            return Enclosure.exactly(0)
        rest = (at - self._spread()) / 2
        return within(narrowed(lambda: -ball(rest).expm1(), bits), Fraction(0), Fraction(1))

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        most = probability("delta", delta)
        loss = self.loss()
        if most == 1:
            return Enclosure.exactly(0)
        if loss:
            return Enclosure.infinite() if most == 0 else loss.epsilon(most, bits)
        if most == 0:
            return Enclosure.exactly(self._spread())
        if self.enclose_delta(0, bits).upper <= most:
            return Enclosure.exactly(0)
        found = narrowed(lambda: ball(self._spread()) + 2 * (-ball(most)).log1p(), bits, _TINY)
        return within(found, Fraction(0), math.inf)

    def dominating_pairs(self) -> DominatingPairs:
        loss = self.loss()
        if loss:
            return DominatingPairs.exactly(((loss, 1),))
        return DominatingPairs.tabled(((Fraction(1), self.pair()),))

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        at, loss = order_above_one(order), self.loss()
        if loss:
            return Enclosure.exactly(loss.renyi(at))
        return narrowed(lambda: self._laplace_renyi(at), bits)

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        check_width(relative)
        loss = self.loss()
        if loss:
            return self._both(Enclosure.exactly(loss.variance / 2))
        return self._both(
            supremum_over_orders(self._laplace_renyi, lambda order: self._spread() / order)
        )

    def _both(self, found: Enclosure) -> Bound:
        return replace(
            Bound.of(found, "exact", _THEOREMS[type(self.noise)]), assumptions=self.assumptions
        )

    def _spread(self) -> Fraction:
        # The ratio l = D/scale.
        moves = Sensitivity.of(self.sensitivity)
        if isinstance(moves.amount, tuple) or moves.norm is Norm.L2_SQUARED:
            raise NotDerived(
                f"the curve of real-valued Laplace noise under {moves!r}",
                "the sensitivity must be one number, or in l1",
            )
        assert isinstance(self.noise, Laplace)  # noqa: S101  # Gaussian noise has a loss
        return moves.amount / Fraction(self.noise.scale)

    def _laplace_renyi(self, order: Fraction) -> arb:
        # log((alpha e^((alpha-1) l) + (alpha-1) e^(-alpha l))/(2 alpha - 1))/(alpha - 1).
        spread, excess = ball(self._spread()), ball(order - 1)
        above, below = (excess * spread).exp(), (-ball(order) * spread).exp()
        whole = (ball(order) * above + excess * below) / ball(2 * order - 1)
        return whole.log() / excess


_LEAST_SQUARE: Final = Fraction(1, 10**30)
_MOST_SQUARE: Final = Fraction(10**20)
_MOST_SPREAD: Final = 1 << 11
_TINY: Final = Fraction(1, 1 << 200)
