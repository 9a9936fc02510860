r"""Poisson sampling of real noise under replace-one neighbours, with one pair per round.

The worst two units move the sum in opposite directions, and that pair dominates all others, so
rounds compose exactly. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from accounting.loss.real_pair import Kinds, RealPair
from accounting.mechanism.sampling_schemes import Poisson, Scheme
from accounting.release.dominating_pairs import DominatingPairs
from accounting.release.real_curve import RealCurve, RealSample
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import Exact, RationalLike

_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PoissonReplaced(RealSample):
    r"""Poisson amplification under replace-one neighbours.

    ``curve`` is of noise on the reals under add-remove: its sensitivity D is how far one unit moves
    the query when it is added. Replaced, a unit moves it by up to D the other way.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> PoissonReplaced(curve=curve, rate="1/100").epsilon("1e-6")
    Bound([0.052436627334552..., 0.0524366273345523...], 'exact')

    Raises :class:`InvalidParameter` for anything but a :class:`RealCurve` of the scope add-remove,
    and a rate in (0, 1].
    """

    scheme: ClassVar[type[Scheme]] = Poisson
    theorem: ClassVar[str] = (
        "one pair above all neighbours: advanced joint convexity (Balle, Barthe and Gaboardi 2018, "
        "Theorem 2) and the Neyman-Pearson lemma"
    )

    curve: RealCurve
    rate: Exact = Exact()

    def __post_init__(self) -> None:
        self._check(below=False, why="the sensitivity is that of one unit added")

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve, with the replace relation."""
        return Scope(unit=self.curve.scope.unit, relation=Relation.REPLACE)

    def kinds(self) -> Kinds:
        r"""The unit, or its replacement with the opposite shift, in the sample."""
        return ((Fraction(1), RealPair.replaced(self.curve.density, self.rate)),)

    @property
    def directions(self) -> tuple[Kinds, ...]:
        r"""One direction: swapping the datasets mirrors the pair."""
        return (self.kinds(),)

    def dominating_pairs(self) -> DominatingPairs:
        r"""The pair; at rate 1 that of the unsampled release."""
        whole = self.rate == 1
        return self.unsampled.dominating_pairs() if whole else RealSample.dominating_pairs(self)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least delta at ``epsilon`` >= 0."""
        if self.rate == 1:
            return self.unsampled.enclose_delta(epsilon, bits)
        return RealSample.enclose_delta(self, epsilon, bits)

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The least epsilon at ``delta`` in [0, 1]."""
        if self.rate == 1:
            return self.unsampled.enclose_epsilon(delta, bits)
        return RealSample.enclose_epsilon(self, delta, bits)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""The divergence without sampling; raises :class:`NotDerived` for a sample."""
        if self.rate == 1:
            return self.unsampled.enclose_renyi(order, bits)
        return RealSample.enclose_renyi(self, order, bits)

    def _largest(self) -> Enclosure:
        return self.kinds()[0][1].largest_loss()

    @property
    def unsampled(self) -> RealCurve:
        r"""The loss without sampling, an upper bound: a replaced unit moves the query by 2D."""
        twice = Sensitivity.of(self.curve.sensitivity).times(2)
        return RealCurve(noise=self.curve.noise, sensitivity=twice, scope=self.scope)
