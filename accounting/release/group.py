r"""Group privacy for k units: their joint shift, and their loss under Poisson sampling.

Without sampling k units move a query by k times as much as one. In a Poisson sample each of them is
there by itself: a mixture of shifts by 0, 1, ..., k. Proofs: docs/proofs/sampling.md.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from accounting.loss.real_pair import Kinds, RealPair
from accounting.mechanism.sampling_schemes import Poisson, Scheme, Shifts
from accounting.release.real_curve import RealCurve, RealSample
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope, Sensitivity
from dpcore.numbers.parameter import Exact, RationalLike, make_integers, rational

MOST_MEMBERS: Final = 64
r"""The largest group whose sample is written out."""


class MixedSample(RealSample):
    r"""A release of Gaussian noise with a random shift, from 0 to ``members`` sensitivities."""

    __slots__ = ()

    members: int

    @property
    @abstractmethod
    def chances(self) -> tuple[Fraction, ...]:
        r"""The probability of each shift."""

    @property
    def scope(self) -> Scope:
        r"""The scope of the curve, for a group."""
        return self.curve.scope

    @property
    def unsampled(self) -> RealCurve:
        r"""The cost of the largest shift without sampling, an upper bound."""
        moves = Sensitivity.of(self.curve.sensitivity).times(self.members)
        return RealCurve(noise=self.curve.noise, sensitivity=moves, scope=self.scope)

    def kinds(self) -> Kinds:
        r"""The noise with a random shift, or without."""
        return ((Fraction(1), RealPair.moved(self.curve.density, self.chances)),)

    def _check_noise(self) -> None:
        if self.curve.loss() is None:
            raise InvalidParameter(
                "noise", self.curve.noise, "must be Gaussian: other noise is not supported"
            )
        self.curve.check_size()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupSampled(MixedSample):
    r"""Group privacy under Poisson sampling: ``members`` units are all added, or all removed.

    ``curve`` is of Gaussian noise on the reals under add-remove, its sensitivity D that of one
    unit. Each member is sampled with probability ``rate``, independently of the others. At worst
    all move the query by D in one direction, so both ends are exact.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> GroupSampled(curve=curve, rate="1/100", members=3).delta("1/10")
    Bound([0.0000134976928748824..., 0.0000134976928748824...], 'exact')

    Raises :class:`InvalidParameter` for anything but such a curve, noise of a size beyond floats, a
    rate outside (0, 1) and a number of members that is not an integer from 1 to 64.
    """

    scheme: ClassVar[type[Scheme]] = Poisson
    theorem: ClassVar[str] = (
        "the members sampled are binomial, and all in one direction are the worst "
        "(Neyman-Pearson lemma)"
    )

    curve: RealCurve
    rate: Exact = Exact()
    members: int

    def __post_init__(self) -> None:
        self._check(below=True, why="members come or go")
        make_integers(self, "members", at_most=MOST_MEMBERS)
        self._check_noise()

    @property
    def chances(self) -> tuple[Fraction, ...]:
        r"""Binomial probabilities: each member is sampled independently."""
        k, rate = self.members, Fraction(self.rate)
        return tuple(math.comb(k, j) * rate**j * (1 - rate) ** (k - j) for j in range(k + 1))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShiftSampled(MixedSample):
    r"""Gaussian noise with a random shift: j times the sensitivity with probability w_j.

    ``weights`` are w_0, ..., w_k >= 0, of the sum 1: the law of the output on one dataset is the
    mixture of the shifts, on the other one it is the noise alone. ``curve`` is as for
    :class:`GroupSampled`, its sensitivity one step.

    >>> from dataclasses import replace
    >>> from accounting.mechanism.real_noise import Gaussian
    >>> scope = Scope(relation="add-remove")
    >>> curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=scope)
    >>> mixture = ShiftSampled(curve=curve, weights=["81/100", "18/100", "1/100"])
    >>> pair = GroupSampled(curve=curve, rate="1/10", members=2)
    >>> mixture.delta("1/10") == replace(pair.delta("1/10"), theorem=mixture.theorem)
    True

    Raises :class:`InvalidParameter` for anything but such a curve, noise of a size beyond floats,
    and weights that are not 2 to 65 numbers >= 0 of the sum 1, the last one > 0.
    """

    scheme: ClassVar[type[Scheme]] = Shifts
    theorem: ClassVar[str] = "a mixture of shifts rises against the noise alone"

    curve: RealCurve
    weights: Sequence[RationalLike]

    def __post_init__(self) -> None:
        found = tuple(rational("weights", each) for each in self.weights)
        if not 2 <= len(found) <= MOST_MEMBERS + 1 or min(found) < 0 or not found[-1]:
            must = f"must be 2 to {MOST_MEMBERS + 1} numbers >= 0, the last one > 0"
            raise InvalidParameter("weights", self.weights, must)
        if sum(found) != 1:
            raise InvalidParameter("weights", self.weights, "must sum to 1")
        object.__setattr__(self, "weights", found)
        self._check_curve("one dataset has the noise alone")
        self._check_noise()

    @property
    def rate(self) -> Fraction:  # type: ignore[override]  # it follows from the weights
        r"""The probability of a nonzero shift."""
        return 1 - Fraction(self.weights[0])

    @property
    def members(self) -> int:  # type: ignore[override]  # the same
        r"""The number of members k."""
        return len(self.weights) - 1

    @property
    def chances(self) -> tuple[Fraction, ...]:
        r"""The given weights."""
        return tuple(rational("weights", each) for each in self.weights)
