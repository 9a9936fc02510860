r"""Theorems of Tenenbaum et al. (2021, "TKMS" in the table) compared with exact values.

The paper is Tenenbaum, Kaplan, Mansour and Stemmer, "Differentially Private Multi-Armed Bandits in
the Shuffle Model" (NeurIPS 2021). Theorem C.1 (Algorithm 3) and the regret bounds of Theorems 3.1
and 3.3 are compared. The shuffled bits reveal only their sum, so the privacy loss follows from the
binomial law of the noise bits. A regret bound is compared with the largest regret of a run in which
all confidence intervals contain their means, plus 4/T for all other runs of T rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.guarantees.bound import Bound
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import (
    WIDTH_BITS,
    BitNoise,
    tkms_bits,
    tkms_threshold,
)
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox, fewest_bits
from bandits.papers.table import Claim, Found, LaterRow, decimals
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import ceiling

_ROUNDED: Final = 1 << 64
_DELTA: Final = Fraction(1, 10**6)
_TARGET: Final = "epsilon = {e}, delta = 1/1000000"

_ARMS: Final = 10
_HORIZON: Final = 10**6
_GAPS: Final = tuple(Fraction(place, 2 * (_ARMS - 1)) for place in range(_ARMS))

_tkms = partial(Claim, "TKMS", erratum="5")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a claim of this paper with the exact value."""
    points = [(1, "0.5"), (10**4, "0.5")]
    if not quick:
        points += [(100, "0.1"), (100, "0.9"), (1000, "0.5"), (10**5, "0.9")]
    for users, epsilon in points:
        yield _theorem(users, Fraction(epsilon))
    for epsilon in ("0.5", "0.1"):
        yield _bits(Fraction(epsilon))
        yield _exact_bits(Fraction(epsilon))
    for epsilon in ("0.5", "0.1"):
        yield _comparisons(Fraction(epsilon))
    yield _tail(10**6, Fraction(1, 2))
    yield _bandit("SDP-AE (batches of m = 1000)", Fraction(1, 2), (1000,))
    sizes = (1, 1024, 1 << 14) if quick else tuple(1 << t for t in range(0, 18, 2))
    yield _bandit("VB-SDP-AE (batches of 2^t)", Fraction(1, 2), sizes)
    for e in [Fraction(1, 2)] if quick else [Fraction(1, 10), Fraction(1, 2)]:
        yield _regret("Theorem 3.1", e)
        yield _regret("Theorem 3.3", e)


def bits_box(found: BitNoise, bound: int = 1, most: int | None = None) -> PrivacyCurve:
    r"""The privacy curve of a sum that changes by at most ``bound``, with the noise bits ``found``.

    An irrational probability of the bits is rounded to within 2^-64. If ``most`` is given, at most
    that many noise bits are counted.
    """
    low, high = Fraction(found.probability.lower), Fraction(found.probability.upper)
    near = low if low == high else Fraction(round(low * _ROUNDED), _ROUNDED)
    trials = found.trials if most is None else min(found.trials, most)
    return BinomialBox(trials=trials, probability=near, bounds=(bound,))


@_tkms(
    "Theorem C.1 (Algorithm 3)",
    "m = {m}, " + _TARGET,
    "delta",
    "{trials} noise bits with probability {chance}",
)
def _theorem(m: int, e: Fraction) -> Found:
    found = tkms_bits(m, e, _DELTA)
    words = {"trials": found.trials, "chance": decimals(found.probability)}
    return _DELTA, bits_box(found).delta(e), words


@_tkms(
    "Algorithm 3, tau",
    _TARGET,
    "the necessary fair noise bits",
    "one bit fewer is certified to be insufficient",
)
def _bits(e: Fraction) -> Found:
    return tkms_bits(1, e, _DELTA).trials, fewest_bits(epsilon=e, delta=_DELTA)


@_tkms("ours: the fewest fair bits", _TARGET + ", {bits} bits", "delta", "calibrated exactly")
def _exact_bits(e: Fraction) -> Found:
    least = fewest_bits(epsilon=e, delta=_DELTA)
    return _DELTA, BinomialBox(trials=least, bounds=(1,)).delta(e), {"bits": least}


@_tkms(
    "Algorithm 3, encoder and analyzer",
    _TARGET,
    "the number of m for which < and <= differ",
    "tau is not an integer, so both comparisons agree",
)
def _comparisons(e: Fraction) -> Found:
    # m < tau and m <= tau differ only for m = tau.
    tau = tkms_threshold(e, _DELTA)
    return 0, math.floor(tau.upper) - math.ceil(tau.lower) + 1


@_tkms(
    "Theorem C.1, its sub-Gaussian noise",
    "m = {m}, " + _TARGET + ", t = 2 E[B]",
    "ln P(B - E[B] >= t)",
    "Chernoff's exp(-t^2/(3 E[B])) holds only for t <= E[B]",
)
def _tail(m: int, e: Fraction) -> Found:
    # B is binomial with mean tau/2; the tail from t = 2 E[B] on is bounded by its first mass and a
    # geometric series.
    def mean() -> arb:
        return 48 * ball(2 / _DELTA).log() / ball(e**2)

    least = ceiling(lambda: 3 * mean())

    def first() -> arb:
        p, ways = mean() / m, arb(m + 1).lgamma() - arb(least + 1).lgamma()
        ways -= arb(m - least + 1).lgamma()
        return ways + least * p.log() + (m - least) * (1 - p).log()

    def whole() -> arb:
        p = mean() / m
        return first() - (1 - (m - least) * p / ((least + 1) * (1 - p))).log()

    ends = Enclosure(narrow(first, WIDTH_BITS).lower, narrow(whole, WIDTH_BITS).upper)
    return narrow(lambda: -4 * mean() / 3, WIDTH_BITS), ends


@_tkms(
    "{algorithm}, by Theorem C.1",
    _TARGET + ", m from {first} to {last}",
    "delta",
    "every user is in one batch, so the guarantee is that of the worst batch",
    erratum=None,
)
def _bandit(algorithm: str, e: Fraction, sizes: tuple[int, ...]) -> Found:
    deltas = [bits_box(tkms_bits(m, e, _DELTA)).enclose_delta(e) for m in sizes]
    worst = Enclosure(max(d.lower for d in deltas), max(d.upper for d in deltas))
    return _DELTA, worst, {"first": sizes[0], "last": sizes[-1]}


@_tkms(
    "{theorem}, its regret for any gaps",
    "k = 10, T = 1000000, epsilon = {epsilon}, delta = 1/1000000, means spaced in [1/4, 3/4]",
    "regret",
    "uniform play has regret {uniform:.0f} here",
    erratum=None,
)
def _regret(theorem: str, epsilon: Fraction) -> Found:
    # sigma^2 of the noise of TKMS Algorithm 3; m is its number of noise bits.
    m = tkms_bits(1, epsilon, _DELTA).trials
    squared = Fraction(m, 4)

    def bound() -> arb:
        log, pulls, rest = arb(_HORIZON).log(), _ARMS * _HORIZON, ball(Fraction(4, _HORIZON))
        if theorem == "Theorem 3.1":
            inner = ball((128 + 512 * squared / m) * pulls) * log
            return 2 * inner.sqrt() + m * _ARMS + rest
        noise = 64 * arb(2).sqrt() * _ARMS * ball(squared).sqrt() * log
        return (2048 * pulls * log).sqrt() + noise + rest

    batch = m if theorem == "Theorem 3.1" else None
    lost = sum((gap * _pulled(batch, squared, gap) for gap in _GAPS), Fraction(4, _HORIZON))
    exact = Bound(
        upper=min(lost, max(_GAPS) * _HORIZON),
        method="clean event",
        theorem="an arm is dropped in the first phase in which 4 I is below its gap",
    )
    return narrow(bound, WIDTH_BITS), exact, {"uniform": float(sum(_GAPS) / _ARMS * _HORIZON)}


def _pulled(batch: int | None, squared: Fraction, gap: Fraction) -> int:
    # The number of pulls of an arm up to the end of the first phase with 4 I below its gap.
    pulled, phase = 0, 0
    while gap and pulled < _HORIZON:
        phase += 1
        pulled += (1 << phase) if batch is None else batch
        if bool(ball(gap) > 4 * _interval(phase, pulled, squared)):
            break
    return min(pulled, _HORIZON)


def _interval(phase: int, pulled: int, squared: Fraction) -> arb:
    noise = 2 * (ball(phase * squared)).sqrt() / pulled
    return (noise + 1 / arb(pulled).sqrt()) * (2 * arb(_HORIZON).log()).sqrt()
