r"""Composition theorems on claims: what several releases promise together, in closed form.

Claims in one word and of one scope; a claim of another word is converted first, by whoever asks
(``accounting.theorems.convert``), so that no conversion is hidden in a sum. Reasons of assumed
claims are kept. Every result says its theorem and when it holds for releases chosen from earlier
outputs. Proofs: docs/proofs/convert.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Final

from accounting.claims.bound import Bound
from accounting.claims.claim import Approx, Assumed, Pure, Rdp, StatedGuarantee, ZCdp
from accounting.claims.orders import rounded_up
from accounting.errors import NotDerived
from accounting.theorems.convert import Word, points_of
from accounting.theorems.optimal import epsilon_delta, optimal_epsilon
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, End, ball, precision
from dpcore.numbers.parameter import RationalLike, integer, rational, rational_in

__all__ = [
    "Composed",
    "advanced",
    "advanced_over_splits",
    "advanced_share",
    "basic",
    "optimal",
    "parallel",
]

_BITS: Final = 192
_LARGEST: Final = 1 << 8192
_MECHANISMS: Final = "each mechanism may be chosen from earlier outputs, its claim may not"
_CLAIMS: Final = "mechanisms and claims may be chosen from earlier outputs while the sum is kept"
_ADVANCED: Final = "Dwork, Rothblum and Vadhan 2010, Theorem III.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    r"""A claim about several releases, the theorem it rests on and what may be chosen on the way.

    >>> basic([(Pure("1/10"), 3)]).claim
    Pure('3/10')
    """

    claim: StatedGuarantee
    theorem: str
    adaptive: str


def basic(parts: Iterable[tuple[StatedGuarantee, int]]) -> Composed:
    r"""Sums: of epsilon, of epsilon and delta, of rho, of Renyi bounds at the common orders.

    ``parts`` holds claims with the number of rounds of each.

    >>> basic([(ZCdp("1/800"), 100), (ZCdp(1), 1)]).claim
    ZCdp('9/8')
    >>> basic([(Approx(1, "1e-6"), 2), (Approx(2, 0), 1)]).claim
    Approx(4, '1/500000')

    Raises :class:`InvalidParameter` for no parts, mixed scopes, mixed words, or Rdp claims
    without a common order.
    """
    pairs = [(claim, integer("rounds", rounds, at_least=1)) for claim, rounds in parts]
    words, reasons = _alike([claim for claim, _ in pairs])
    counted = list(zip(words, (rounds for _, rounds in pairs), strict=True))
    return Composed(
        claim=_kept(reduce(_added, (_times(word, rounds) for word, rounds in counted)), reasons),
        theorem="basic composition: what each claim bounds adds",
        adaptive=_CLAIMS,
    )


def parallel(claims: Iterable[StatedGuarantee]) -> Composed:
    r"""The largest, for releases on disjoint sets of users.

    Neighbours differ in one user, who is in one set. Which set that is must not depend on data.

    >>> parallel([Pure(1), Pure("1/2")]).claim
    Pure(1)

    Raises :class:`InvalidParameter` as :func:`basic` does.
    """
    words, reasons = _alike(list(claims))
    return Composed(
        claim=_kept(reduce(_larger, words), reasons),
        theorem="parallel composition: neighbours differ in one part",
        adaptive="each part by itself; who is in which part is fixed without looking at data",
    )


def advanced(claim: StatedGuarantee, rounds: int, *, slack: RationalLike) -> Composed:
    r"""k rounds of (e, d): (e sqrt(2k log(1/slack)) + k e (e^e - 1), k d + slack).

    >>> total = advanced(Pure("1/20"), 1000, slack="1e-6").claim
    >>> total.stated_delta, float(total.stated_epsilon)
    (Fraction(1, 1000000), 10.87...)

    Raises :class:`InvalidParameter` for a slack outside (0, 1) or a word but Pure and Approx.
    """
    k, left = integer("rounds", rounds, at_least=1), rational_in("slack", slack, "(0, 1)")
    (word,), reasons = _alike([claim])
    epsilon, delta = epsilon_delta(word)
    total = _forward(epsilon, k, left)
    if not isinstance(total, Fraction):
        raise NotDerived(f"advanced composition of {word!r}", "its epsilon is beyond any number")
    found = Approx(total, min(k * delta + left, Fraction(1)), scope=word.scope)
    return Composed(claim=_kept(found, reasons), theorem=_ADVANCED, adaptive=_MECHANISMS)


def advanced_share(epsilon: RationalLike, rounds: int, *, slack: RationalLike) -> Fraction:
    r"""The epsilon of each of k rounds that gives ``epsilon`` in (0, 1) in all; rounded down.

    epsilon/(2 sqrt(2k log(1/slack))): k rounds of (this, d) are (epsilon, k d + slack)-DP. The
    corollary of Dwork and Roth (2014, 3.21) as the papers quote it. It is false for a slack next
    to 1, so it is given only where :func:`advanced` confirms it.

    >>> float(advanced_share("1/2", 1000, slack="1e-6"))
    0.00150...

    Raises :class:`InvalidParameter` for an epsilon or slack outside (0, 1) or a slack too large.
    """
    total, k = rational_in("epsilon", epsilon, "(0, 1)"), integer("rounds", rounds, at_least=1)
    left = rational_in("slack", slack, "(0, 1)")
    with precision(_BITS):
        share = Enclosure.of(ball(total) / (2 * (2 * k * -ball(left).log()).sqrt())).lower
    each = -rounded_up(-Fraction(share))
    if not _forward(each, k, left) <= total:
        raise InvalidParameter("slack", slack, "is too close to 1 for the corollary to hold")
    return each


def optimal(claim: StatedGuarantee, rounds: int, delta: RationalLike) -> Composed:
    r"""The least epsilon that k rounds of a Pure or Approx claim give at ``delta``, rounded up.

    >>> float(optimal(Pure("1/20"), 1000, "1e-6").claim.stated_epsilon)
    8.28357...

    Raises :class:`NotDerived` for a delta below 1 - (1 - d)^k, which no epsilon gives.
    """
    (word,), reasons = _alike([claim])
    if not isinstance(word, (Pure, Approx)):
        raise InvalidParameter("claim", claim, "must be a Pure or Approx claim: convert it first")
    total = rational("delta", delta)
    found = rounded_up(optimal_epsilon(word, rounds, total).upper)
    if not isinstance(found, Fraction):
        raise NotDerived(f"an epsilon of {rounds} rounds of {word!r} at {delta}", "raise delta")
    return Composed(
        claim=_kept(Approx(found, total, scope=word.scope), reasons),
        theorem="Kairouz, Oh and Viswanath 2015, Theorem 3.3: optimal",
        adaptive=_MECHANISMS,
    )


def advanced_over_splits(
    epsilon_of: Callable[[Fraction], End], rounds: int, delta: RationalLike
) -> Bound:
    r"""Advanced composition of k rounds of one curve, the least over delta = k d + slack.

    ``epsilon_of(d)`` is an upper bound of a round's epsilon at d, infinite where there is none.
    Every split gives a true bound; a search in floats proposes them.

    >>> advanced_over_splits(lambda d: Fraction(1, 20), 1000, "1e-6").upper_float
    10.87...

    Raises :class:`InvalidParameter` for a delta outside (0, 1).
    """
    k, total = integer("rounds", rounds, at_least=1), rational_in("delta", delta, "(0, 1)")

    def at(place: float) -> End:
        # Splits slack : k d = 1 : e^place; the floats decide which split, nothing else.
        slack = total * Fraction(1 / (1 + math.exp(place)))
        return _forward(epsilon_of((total - slack) / k), k, slack)

    places = [float(place) for place in range(-12, 13, 3)]
    start = min(places, key=at)
    found, step = at(start), 1.5
    for _ in range(12):
        for place in (start - step, start + step):
            if (other := at(place)) < found:
                start, found = place, other
        step /= 2
    found = min(found, _forward(epsilon_of(Fraction(0)), k, total))
    return Bound(upper=found, method="advanced", theorem=_ADVANCED)


def _forward(epsilon: End, rounds: int, slack: Fraction) -> End:
    if not isinstance(epsilon, Fraction):
        return math.inf
    with precision(_BITS):
        each = ball(epsilon)
        spread = (2 * rounds * -ball(slack).log()).sqrt()
        total = rounded_up(Enclosure.of(each * spread + rounds * each * each.expm1()).upper)
    # Beyond this a claim could not be written out.
    return total if total < _LARGEST else math.inf


def _alike(claims: Sequence[StatedGuarantee]) -> tuple[list[Word], list[str]]:
    # Assumptions aside, all of one word and one scope.
    if not claims:
        raise InvalidParameter("parts", claims, "must hold at least one claim")
    words: list[Word] = []
    reasons: set[str] = set()
    for claim in claims:
        if not isinstance(claim, (Pure, ZCdp, Rdp, Approx, Assumed)):
            raise InvalidParameter("claim", claim, "must be a claim, not a curve")
        if isinstance(claim, Assumed):
            reasons.add(claim.reason)
        words.append(claim.guarantee if isinstance(claim, Assumed) else claim)
        if words[-1].scope != words[0].scope:
            raise InvalidParameter(
                "scope", words[-1].scope, f"must be {words[0].scope}: mixed scopes never compose"
            )
        if type(words[-1]) is not type(words[0]):
            raise InvalidParameter(
                "parts", claims, "must be claims of one word: convert them to one first"
            )
    return words, sorted(reasons)


def _kept(word: Word, reasons: Sequence[str]) -> StatedGuarantee:
    return Assumed(word, "; ".join(reasons)) if reasons else word


def _times(word: Word, rounds: int) -> Word:
    match word:
        case Pure():
            return Pure(rounds * word.stated_epsilon, scope=word.scope)
        case ZCdp():
            return ZCdp(rounds * word.rho, scope=word.scope)
        case Rdp():
            return Rdp([(a, rounds * e) for a, e in points_of(word)], scope=word.scope)
        case Approx():
            epsilon, delta = epsilon_delta(word)
            return Approx(rounds * epsilon, min(rounds * delta, Fraction(1)), scope=word.scope)


def _added(one: Word, other: Word) -> Word:
    return _joined(one, other, lambda a, b: a + b)


def _larger(one: Word, other: Word) -> Word:
    return _joined(one, other, max)


def _joined(one: Word, other: Word, join: Callable[[Fraction, Fraction], Fraction]) -> Word:
    match one, other:
        case Rdp(), Rdp():
            points = dict(points_of(other))
            common = [(a, join(e, points[a])) for a, e in points_of(one) if a in points]
            if not common:
                raise InvalidParameter("parts", (one, other), "must share at least one order")
            return Rdp(common, scope=one.scope)
        case ZCdp(), ZCdp():
            return ZCdp(join(one.rho, other.rho), scope=one.scope)
        case _:
            epsilon, delta = map(join, epsilon_delta(one), epsilon_delta(other))
            if isinstance(one, Pure):
                return Pure(epsilon, scope=one.scope)
            return Approx(epsilon, min(delta, Fraction(1)), scope=one.scope)
