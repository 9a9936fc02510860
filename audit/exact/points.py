r"""Two known laws P and Q at single points: enclosures in both directions, and claims decided.

A guarantee speaks of both directions, P(S) against Q(S) and Q(S) against P(S), so the number of a
point is the larger of the two. One direction may be missing (None): then it is proven never to
exceed the other one (``audit.exact.direction.NeverWorse``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from audit.claims.claim import Claim
from audit.exact.direction import NeverWorse
from audit.exact.divergence import (
    AnyLaw,
    Event,
    Shifted,
    epsilon_at,
    hockey_stick,
    renyi,
    worst_event,
)
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.binomial import Binomial
from dpcore.numbers.enclosure import Enclosure

Order: TypeAlias = Fraction | float
r"""An order of a Renyi divergence: a rational > 1, or ``math.inf``."""

Direction: TypeAlias = Literal["p_against_q", "q_against_p"]
Decided: TypeAlias = Literal["proven", "refuted", "undecided"]

_DECIDING: Final = (64, 256, 1024, 4096)
_TRANSCENDENTAL: Final = (*_DECIDING, 1 << 14, 1 << 16)
_MOST_TRIALS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    r"""A quantity at a point (``at``), in both directions."""

    quantity: Literal["delta", "epsilon", "renyi"]
    at: Order
    p_against_q: Enclosure | None
    q_against_p: Enclosure | None

    @property
    def worse(self) -> Enclosure:
        found = [way for way in (self.p_against_q, self.q_against_p) if way is not None]
        return Enclosure(max(way.lower for way in found), max(way.upper for way in found))


def delta_point(p: AnyLaw, q: AnyLaw, epsilon: Fraction) -> Point:
    r"""The smallest delta at ``epsilon``."""
    return _both("delta", epsilon, p, q, lambda one, other: hockey_stick(one, other, epsilon))


def epsilon_point(p: AnyLaw, q: AnyLaw, delta: Fraction) -> Point:
    r"""The smallest epsilon at ``delta``.

    Raises :class:`PrecisionExhausted` where delta is a value at which epsilon jumps and the law's
    masses are not rational.
    """

    def smallest(one: AnyLaw, other: AnyLaw) -> Enclosure:
        try:
            found = epsilon_at(one, other, delta)
        except PrecisionExhausted:
            tables = _tabulated(one), _tabulated(other)
            if tables[0] is None or tables[1] is None:
                raise
            return epsilon_at(tables[0], tables[1], delta)
        if delta or found.lower == found.upper or found.upper < math.inf:
            return found
        # epsilon(0) is the divergence of order infinity, which no other order exceeds.
        return max(found, renyi(one, other, 2), key=lambda enclosure: enclosure.lower)

    return _both("epsilon", delta, p, q, smallest)


def renyi_point(p: AnyLaw, q: AnyLaw, order: Order) -> Point:
    r"""The Renyi divergence of that order; of order infinity it is epsilon at delta = 0."""
    if isinstance(order, float):
        if order != math.inf:
            raise InvalidParameter("order", order, "must be a rational > 1, or infinity")
        return replace(epsilon_point(p, q, Fraction()), quantity="renyi", at=order)
    return _both("renyi", order, p, q, lambda one, other: renyi(one, other, order))


def _both(
    quantity: Literal["delta", "epsilon", "renyi"],
    at: Order,
    p: AnyLaw,
    q: AnyLaw,
    enclose: Callable[[AnyLaw, AnyLaw], Enclosure],
) -> Point:
    ways: list[Enclosure | None] = []
    for one, other in ((p, q), (q, p)):
        try:
            ways.append(enclose(one, other))
        except NeverWorse:
            ways.append(None)
    return Point(quantity=quantity, at=at, p_against_q=ways[0], q_against_p=ways[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    r"""A claimed point and what was proven about it.

    ``delta`` encloses the smallest delta at the claimed epsilon, ``epsilon`` the smallest epsilon
    at the claimed delta (None where that jumps there and precision does not tell). ``event`` is one
    that breaks a refuted claim, where one is named: towards P where ``direction`` is "p_against_q".
    A claim is "undecided" where the enclosure still holds its delta at the highest precision.
    """

    claim: Claim
    verdict: Decided
    delta: Point
    epsilon: Point | None
    direction: Direction | None = None
    event: Event | None = None


def decide(p: AnyLaw, q: AnyLaw, claim: Claim) -> Decision:
    r"""Prove or refute P(S) <= e^epsilon Q(S) + delta and Q(S) <= e^epsilon P(S) + delta, all S.

    Of two pmfs every claim is decided: their delta is rational and exact, or irrational
    (Lindemann), and rising precision tells it from the claimed one. So is every claim of one
    coordinate of binomial noise, whose masses are rational.

    >>> from dpcore import DiscreteLaplace
    >>> noise = DiscreteLaplace(scale=2)
    >>> one, other = Shifted(noise, 0), Shifted(noise, 1)
    >>> decide(one, other, Claim(epsilon="1/2")).verdict
    'proven'
    >>> found = decide(one, other, Claim(epsilon="0.499"))
    >>> found.verdict, found.event.words
    ('refuted', 'output <= 0')
    """
    epsilon, delta = claim.exact
    ways: dict[Direction, tuple[AnyLaw, AnyLaw]] = {"p_against_q": (p, q), "q_against_p": (q, p)}
    reached: dict[Direction, Enclosure] = {}
    for direction, (one, other) in ways.items():
        try:
            reached[direction] = _settled(one, other, epsilon, delta)
        except NeverWorse:
            continue
    above = [way for way, found in reached.items() if found.lower > delta]
    proven = all(found.upper <= delta for found in reached.values())
    worse = max(above, key=lambda way: reached[way].lower, default=None)
    one, other = (q, p) if worse == "q_against_p" else (p, q)
    needed: Point | None = None
    with suppress(PrecisionExhausted):
        needed = epsilon_point(p, q, delta)
    return Decision(
        claim=claim,
        verdict="refuted" if above else "proven" if proven else "undecided",
        delta=Point(
            quantity="delta",
            at=epsilon,
            p_against_q=reached.get("p_against_q"),
            q_against_p=reached.get("q_against_p"),
        ),
        epsilon=needed,
        direction=worse,
        event=None if worse is None else worst_event(one, other, epsilon),
    )


def _settled(p: AnyLaw, q: AnyLaw, epsilon: Fraction, delta: Fraction) -> Enclosure:
    # delta(epsilon) of one direction: above the claimed delta, or not, or as narrow as it gets.
    exact = not (isinstance(p, Shifted) or isinstance(q, Shifted))
    if exact and (rational := _if_rational(p, q, epsilon)) is not None:
        return Enclosure.exactly(rational)
    found = Enclosure(0, 1)  # which holds every delta
    for bits in _TRANSCENDENTAL if exact else _DECIDING:
        try:
            found = hockey_stick(p, q, epsilon, bits=bits)
        except PrecisionExhausted:
            break
        if found.upper <= delta or found.lower > delta:
            return found
    one, other = _tabulated(p), _tabulated(q)
    return found if one is None or other is None else _settled(one, other, epsilon, delta)


def _if_rational(p: AnyLaw, q: AnyLaw, epsilon: Fraction) -> Fraction | None:
    # Of pmfs, delta = P(S) - e^epsilon Q(S) with rational masses: itself rational where epsilon or
    # Q(S) is 0, and transcendental else.
    event = worst_event(p, q, epsilon)
    if event is None:
        return Fraction()
    in_p, in_q = Fraction(event.p.lower), Fraction(event.q.lower)
    return in_p - in_q if epsilon == 0 or not in_q else None


def _tabulated(law: AnyLaw) -> AnyLaw | None:
    # Binomial noise in one coordinate, by its rational masses.
    match law:
        case Shifted(noise=Binomial() as noise, shift=int(shift)) if noise.trials <= _MOST_TRIALS:
            chance, trials = noise.probability, noise.trials
            return {
                shift + k: math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
                for k in range(trials + 1)
            }
    return None
