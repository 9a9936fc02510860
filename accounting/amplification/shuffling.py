r"""Privacy amplification by shuffling: the privacy curve of local reports in a random order.

Let R_x be the law of a local report on the value x. Then R_x(y) = b(y) r if the report y supports
x, otherwise R_x(y) = b(y). Here r is the likelihood ratio, and the measure b is called the privacy
blanket. So each report is drawn from the blanket with probability sum_y b(y), whatever the value.

Neighbours differ in the value of one of n users. The upper bound holds even if the adversary
removes all reports of other users that are not drawn from the blanket (Balle, Bell, Gascon and
Nissim 2019). The lower bound is the curve of two neighbours in which all other users have the same
value. This value differs from both values of the one user if there are three or more values. Each
bound on delta is the mean positive part of a sum of n independent variables, divided by n. Proofs:
docs/proofs/local.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import comb
from typing import ClassVar, Final, cast

import numpy as np
from flint import arb

from accounting.amplification.subsampling import DescribedSample
from accounting.descriptions.sampling_schemes import Shuffled
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import probability
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import ListedLoss
from accounting.pld_composition.delta_of_total_loss import ContourIntegral
from accounting.pld_composition.saddle_point import saddle_at_epsilon
from accounting.privacy_curves.connect_the_dots import UNSEEN, ConnectTheDotsPair, CurvePoint
from accounting.privacy_curves.dominating_pairs import DominatingPairs, of_table
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.release_curve import OneRelease
from dpcore.local import LocalReport, ShuffledReports
from dpcore.numbers.enclosure import Enclosure, End, ball, precision, round_down, round_up
from dpcore.numbers.parameter import RationalLike, at_least_zero

_BITS: Final = 64
_WORKING: Final = 128
_FINEST: Final = Fraction(1, 10**6)
_FEW: Final = 64
_ROUGH: Final = Fraction(1, 1000)
_COARSE: Final = Fraction(1, 10**4)
_DOTS: Final = 100
_THIRD: Final = 3
_CLOSE: Final = 1e-7
_STEP: Final = 0.5
_ALMOST: Final = 1 - 1e-12
_END: Final = 60
_FAR: Final = 700.0
_TILT: Final = 24
"""k is about 2^-24 times the saddle point: both bounds differ by about 2^-23 of the result."""

Law = dict[tuple[bool, ...], Fraction]
"""The mass of the reports that support exactly a given subset of two or three values."""


class ShuffledCurve(DescribedSample):
    r"""The privacy curve of local reports in a random order; neighbours differ in one user's value.

    For randomised response of three or more values, 1000 users and epsilon up to 8 per report the
    two bounds on epsilon differ by about 1% or less. For other mechanisms, for only two values, or
    for few users, the upper bound may be 1.5 times the lower one. The lower bound for a composition
    of several shuffles is that of a single shuffle. :func:`guarantee` returns this curve for
    :class:`ShuffledReports`.

    >>> from accounting.descriptions.description import Description
    >>> from accounting.descriptions.sampling_schemes import Shuffled
    >>> from dpcore.local import RandomisedResponse
    >>> votes = Description(
    ...     noise=RandomisedResponse(epsilon=4, values=100), scheme=Shuffled(users=10**6)
    ... )
    >>> ShuffledCurve(description=votes).epsilon("1e-8")
    Bound([0.0264..., 0.0264...], 'contour')
    """

    __slots__ = ()

    theorem: ClassVar[str] = "the blanket of local reports (Balle, Bell, Gascon and Nissim 2019)"

    @property
    def reports(self) -> ShuffledReports:
        report, scheme = self.description.noise, self.description.scheme
        return ShuffledReports(
            report=cast("LocalReport", report), users=cast("Shuffled", scheme).users
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        r"""The assumptions on the shuffler and on the number of users that follow the protocol."""
        users = self.reports.users
        honest = f"{users} users follow" if users > 1 else "1 user follows"
        return (f"a shuffler hides the order, and {honest} the protocol",)

    @property
    def unsampled(self) -> ReportCurve:
        r"""The curve of one report without shuffling, which gives upper bounds."""
        return ReportCurve.of(self.reports.report)

    def enclose_delta(self, epsilon: RationalLike, bits: int = _BITS) -> Enclosure:
        exact = at_least_zero("epsilon", epsilon)
        return Enclosure(
            *(
                _delta(self.reports, exact, _width(self.reports, Fraction(1, 1 << bits)), above=a)
                for a in (False, True)
            )
        )

    def enclose_epsilon(self, delta: RationalLike, bits: int = _BITS) -> Enclosure:
        most = probability("delta", delta)
        loss = self.reports.report.loss
        if most == 0:
            return loss
        near, width = _guess(self.reports, most), _width(self.reports, Fraction(1, 1 << bits))
        upper = min(_epsilon(self.reports, most, width, near, above=True), loss.upper)
        lower = _epsilon(self.reports, most, width, float(upper), above=False)
        return Enclosure(lower, upper)

    def enclose_renyi(self, order: RationalLike, bits: int = _BITS) -> Enclosure:
        r"""Enclose D_alpha between 0 and the D_alpha of one report without shuffling."""
        return Enclosure(Fraction(0), self.unsampled.enclose_renyi(order, bits).upper)

    def _both(self, found: Enclosure) -> Bound:
        return replace(OneRelease._both(self, found), method="contour")

    def dominating_pairs(self) -> DominatingPairs:
        r"""A pair of laws whose privacy curve lies above that of the shuffled reports."""
        return of_table(_above(self.reports))


def _width(reports: ShuffledReports, wanted: Fraction) -> Fraction:
    # If few reports are from the blanket, the sum is often 0 and narrow bounds take long.
    few = reports.users * sum(_blanket(reports.report).values()) < _FEW
    return max(wanted, _ROUGH if few else _FINEST)


@lru_cache(maxsize=1 << 12)
def _delta(reports: ShuffledReports, epsilon: Fraction, relative: Fraction, *, above: bool) -> End:
    with precision(_WORKING):
        ratio, factor = ball(reports.report.ratio), ball(epsilon).exp()
        if ratio <= factor:
            return Fraction(0)
        found = [
            mean_positive_part(values, reports.users, relative, above=above)
            for values in _values(reports.report, ratio, factor, above=above)
        ]
    # The maximum over the choices of the other users' values.
    return min(max(found) / reports.users, Fraction(1))


def _values(
    report: LocalReport, ratio: arb, factor: arb, *, above: bool
) -> Iterator[list[tuple[arb, arb]]]:
    # (R_0 - t R_1)/R with its mass, where a report of another user has the law R. For the upper
    # bound, R is the blanket b, and other reports are removed; for the lower bound, all other users
    # have the same value.
    law, weights = _blanket(report), (arb(1), ratio)
    missing = 1 - sum(law.values())
    if above:
        found = [(weights[at[0]] - factor * weights[at[1]], ball(mass)) for at, mass in law.items()]
        yield [*found, (arb(0), ball(missing))] if missing else found
        return
    for other in (2,) if report.values >= _THIRD else (0, 1):
        yield [
            (
                (weights[at[0]] - factor * weights[at[1]]) / weights[at[other]],
                ball(mass) * weights[at[other]],
            )
            for at, mass in law.items()
        ]


def _blanket(report: LocalReport) -> Law:
    # The masses of b by inclusion and exclusion, from those of one, two and three supported values.
    ratio, own = report.ratio, report.own
    one = own / ratio
    two = one - (own - report.other) / (ratio - 1)
    by = [one + 1 - own, one, two]
    if report.values >= _THIRD:
        by.append(report.triple / ratio)
    names = len(by) - 1
    law = Law()
    for at in product((False, True), repeat=names):
        supported, absent = sum(at), names - sum(at)
        mass = sum(
            ((-1) ** k * comb(absent, k) * by[supported + k] for k in range(absent + 1)),
            Fraction(0),
        )
        if mass:
            law[at] = mass
    return law


def mean_positive_part(
    values: Sequence[tuple[arb, arb]], count: int, relative: Fraction, *, above: bool
) -> End:
    r"""A bound on E[(W_1 + ... + W_n)+] for n = ``count`` independent copies of a variable W.

    It is an upper bound if ``above`` is true, else a lower bound. ``values`` lists each value of W
    with its probability; the probabilities sum to 1. ``relative`` is the approximate relative width
    of the contour integral.

    The contour integral encloses E[(1 - e^-L)+] for a total loss L. With the sum S of the W_i, it
    is applied to L = k S for a small k > 0. Then

        E[(1 - e^(-kS))+]/k <= E[S+] <= E[(e^(kS) - 1)+]/k = M(k)^n E'[(1 - e^(-kS))+]/k,

    where M(k) = E[e^(kW)], and E' is the mean under the law that gives each value w of W the mass
    e^(kw) P(W = w)/M(k).
    """
    with precision(_WORKING):
        ends = [Enclosure.of(w).upper if above else Enclosure.of(w).lower for w, _ in values]
        at = np.array([round_up(end) if above else round_down(end) for end in ends])
        if not at.max() > 0:
            return Fraction(0)
        unit = float(at.max())
        near = Listing(at / unit, np.array([float(m) for _, m in values]), 0.0)
        saddle = saddle_at_epsilon(0.0, ((ListedLoss(listing=near, above=above), count),))
        scale = math.ldexp(1.0, math.floor(math.log2(saddle.tilt / unit)) - _TILT)
        moment = arb(1)
        if above:
            grown = [m * (scale * w).exp() for w, m in values]
            moment = sum(grown, arb(0))
            highs = [round_up(Enclosure.of(m / moment).upper) for m in grown]
            listing = Listing.above(at * scale, np.array(highs), 0.0)
        else:
            masses = [Enclosure.of(m) for _, m in values]
            least = np.array([round_down(m.lower) for m in masses])
            most = np.array([round_up(m.upper) for m in masses])
            listing = Listing.below(at * scale, least, most)
        total = ContourIntegral(parts=((ListedLoss(listing=listing, above=above), count),))
        found = total.delta(0, relative)
        end = Enclosure.of(
            ball(Fraction(found.upper if above else found.lower))
            * moment**count
            / ball(Fraction(scale))
        )
        return end.upper if above else end.lower


def _epsilon(
    reports: ShuffledReports, delta: Fraction, relative: Fraction, near: float, *, above: bool
) -> End:
    from scipy.optimize import brentq

    # Floats propose values; each is accepted by its bound on delta, and the best one is kept.
    largest = round_down(reports.report.loss.upper)
    kept: list[Fraction] = []

    def excess(place: float) -> float:
        # log delta is almost linear in the place: log(epsilon/(largest - epsilon)).
        at = Fraction(largest / (1 + math.exp(-place)))
        found = _delta(reports, at, relative, above=above)
        if found <= delta if above else found >= delta:
            kept.append(at)
        return _log(found) - _log(delta) if found else -_FAR

    if excess(-math.inf) <= 0:
        return Fraction(0)
    # A step of a grid that all deltas share, so the result does not depend on earlier ones.
    share = min(near / largest, _ALMOST)
    low = max(math.floor(math.log(share / (1 - share)) / _STEP), -_END)
    while excess(low * _STEP) <= 0 and low > -_END:
        low -= 1
    while excess((low + 1) * _STEP) > 0 and low < _END:
        low += 1
    with suppress(ValueError):  # raised if epsilon is beyond an end: the signs are then equal
        brentq(excess, low * _STEP, (low + 1) * _STEP, xtol=_CLOSE, rtol=_CLOSE)
    if above:
        return min(kept, default=reports.report.loss.upper)
    return max(kept, default=Fraction(0))


def _guess(reports: ShuffledReports, delta: Fraction) -> float:
    # The epsilon of Gaussian noise whose likelihood ratio has the same variance.
    report = reports.report
    square = 2 * (report.own - report.other) * (report.ratio - 1) / reports.users
    return math.sqrt(float(square) * 2 * max(-_log(delta), 1.0))


def _log(value: End) -> float:
    return float(ball(Fraction(value)).log())


@lru_cache(maxsize=64)
def _above(reports: ShuffledReports) -> ConnectTheDotsPair:
    # Points at equal steps of epsilon, in both directions: h(x) = 1 - x + x h(1/x), as swapping the
    # two values gives the same curve. h is 0 at and above the likelihood ratio of one report.
    width, near = _width(reports, _COARSE), _guess(reports, UNSEEN)
    most = Fraction(round_up(reports.report.loss.upper))
    last = min(_epsilon(reports, UNSEEN, width, near, above=True), most)
    ratio = reports.report.ratio
    dots: list[CurvePoint] = [(ratio, Fraction(0)), (1 / ratio, 1 - 1 / ratio)]
    for step in range(_DOTS + 1):
        epsilon = Fraction(last) * step / _DOTS
        with precision(_WORKING):
            x = Fraction(Enclosure.of(ball(epsilon).exp()).upper)
        height = Fraction(_delta(reports, epsilon, width, above=True))
        dots += [(x, height), (1 / x, 1 - 1 / x + height / x)]
    return ConnectTheDotsPair.through(dots)
