r"""Privacy odometers: bounds on the privacy loss so far that hold at all times.

A filter guarantees its budget whenever the releases stop. An odometer gives more: a loss that grows
with the counters and may be read at any time, even a time chosen depending on earlier readings. For
pure charges the sum is such a loss. For other charges a supermartingale gives a bound

    loss <= (lambda + 1) (sum of rho) + log(1/delta_j)/lambda for all times, except with probability
    delta_j

for each lambda; a geometric grid of lambdas, fixed when the odometer opens, shares one delta
(Whitehouse, Ramdas, Rogers and Wu 2023; Rogers, Roth, Ullman and Vadhan 2016).
Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from accounting.adaptive_composition.privacy_filter import (
    ApproxFilter,
    Filter,
    PureFilter,
    RdpFilter,
    ZCdpFilter,
)
from accounting.guarantees.renyi_to_epsilon import rounded_up
from accounting.guarantees.stated_guarantees import points_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.parameter import RationalLike, rational, rational_in

_BITS: Final = 128
_LINES: Final = 64
_ROOT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AtAllTimes:
    r"""P(S) <= E_Q[e^epsilon; S] + delta for every event S of the outputs up to any time.

    P and Q are the laws under two neighbouring datasets; ``epsilon`` is the reading of the odometer
    at that time, which may depend on all earlier releases. If epsilon never exceeds e, this is
    (e, delta)-DP.
    """

    epsilon: Fraction
    delta: Fraction
    theorem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    r"""The privacy spent so far, valid simultaneously at all times, except with probability
    ``slack``.

    >>> from accounting.guarantees.stated_guarantees import Pure, ZCdp
    >>> from accounting.adaptive_composition.privacy_filter import SHARES
    >>> Odometer(filter=PureFilter(budget=Pure(2))).read((SHARES // 2,)).epsilon
    Fraction(1, 1)
    >>> opened = Odometer(filter=ZCdpFilter(budget=ZCdp("1/2")), slack="1e-6")
    >>> float(opened.read((SHARES,)).epsilon), float(opened.read((SHARES // 1000,)).epsilon)
    (5.88..., 0.19...)

    Raises :class:`InvalidParameter` for a slack outside (0, 1), or a slack for a pure filter.
    """

    filter: Filter
    slack: RationalLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.filter, (PureFilter, ZCdpFilter, RdpFilter, ApproxFilter)):
            raise InvalidParameter(
                "filter", self.filter, "must be a PureFilter, ZCdpFilter, RdpFilter or ApproxFilter"
            )
        if isinstance(self.filter, PureFilter):
            if self.slack is not None:
                raise InvalidParameter(
                    "slack", self.slack, "must be None: a pure-DP sum needs no slack"
                )
            return
        object.__setattr__(self, "slack", rational_in("slack", self.slack, "(0, 1)"))

    def read(self, total: Sequence[int]) -> AtAllTimes:
        r"""The guarantee of the counters at ``total``, rounded up.

        Raises :class:`InvalidParameter` for counters beyond the limits of an Approx filter.
        """
        held = self.filter.held(total)
        if isinstance(self.filter, ApproxFilter) and any(
            n > most for n, most in zip(total, self.filter.limits, strict=True)
        ):
            # The delta of charges beyond the limits is not accounted for.
            raise InvalidParameter("total", total, "must lie within the limits of the filter")
        match self.filter:
            case PureFilter():
                return AtAllTimes(
                    epsilon=held[0],
                    delta=Fraction(0),
                    theorem="the loss is at most the sum of the epsilons (Rogers et al. 2016)",
                )
            case RdpFilter():
                epsilon, rest = self._orders(self.filter, held), Fraction(0)
            case ApproxFilter():
                epsilon, rest = self._lines(held[0]), self.filter.budgets[1]
            case _:
                epsilon, rest = self._lines(held[0]), Fraction(0)
        return AtAllTimes(
            epsilon=epsilon,
            delta=min(self._slack + rest, Fraction(1)),
            theorem="Ville's inequality on a fixed grid (Whitehouse et al. 2023)",
        )

    @property
    def _slack(self) -> Fraction:
        return rational("slack", self.slack)

    def _lines(self, rho: Fraction) -> Fraction:
        if rho == 0:
            return Fraction(0)
        most = self.filter.budgets[0]
        return min(
            _line((rate + 1) * rho, rate, share * self._slack)
            for rate, share in (_rate(most, self._slack, j) for j in range(1, _LINES + 1))
        )

    def _orders(self, opened: RdpFilter, held: tuple[Fraction, ...]) -> Fraction:
        orders = [order for order, _ in points_of(opened.budget)]
        share = self._slack / len(orders)
        return min(
            Fraction(0) if sum_of == 0 else _line(sum_of, order - 1, share)
            for order, sum_of in zip(orders, held, strict=True)
        )


def _rate(most: Fraction, slack: Fraction, j: int) -> tuple[Fraction, Fraction]:
    # The lambda of line j, approximately the best one if the sum of rho is most/2^(j-1), and its
    # share of the slack, 1/(j(j+1)), which adds up to less than 1. Only integers are used, so that
    # a line is the same at every time and on every machine.
    share = Fraction(1, j * (j + 1))
    log = Fraction(693, 1000) * math.ceil(1 / (share * slack)).bit_length()
    square = log / (most / 2 ** (j - 1))
    # The shift keeps 64 bits of the root, whatever its size.
    shift = _ROOT + max(square.denominator.bit_length() - square.numerator.bit_length(), 0)
    return Fraction(math.isqrt(math.floor(square * 4**shift)), 2**shift), share


def _line(sum_of: Fraction, rate: Fraction, delta: Fraction) -> Fraction:
    with precision(_BITS):
        found = Enclosure.of(ball(sum_of) - ball(delta).log() / ball(rate)).upper
    return Fraction(rounded_up(found))
