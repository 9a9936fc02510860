r"""Proven bounds on the divergences of two known output laws, without sampling.

A law is a pmf, or a dpcore noise shifted by an integer or a tuple. The masses of a pmf are rational
numbers, or rational functions of e^(-unit) for a rational unit. Noise shifted by a tuple has one
independent draw per coordinate. For two laws P and Q, this module computes lower and upper bounds
on each of

    delta(epsilon) = sup_S P(S) - e^epsilon Q(S) = sum_x max(0, P(x) - e^epsilon Q(x)),
    epsilon(delta) = min {epsilon >= 0: delta(epsilon) <= delta},
    D_a(P || Q)    = 1/(a-1) log sum_x P(x)^a Q(x)^(1-a),

where S is any set of outputs, x an output, and a > 1. These are the quantities for P against Q; a
claim must also hold for Q against P. For two shifts of one noise, ``accounting`` provides a
dominating pair for their distance in one direction, which is converted to the requested direction.
Sums over pmfs are computed in rational arithmetic, except for one final exponential or logarithm.
Proof: ``docs/proofs/exact_audits.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from typing import ClassVar, Final, Literal, TypeAlias

from flint import arb

from accounting.errors import NotDerived
from accounting.law_pairs.one_sided import OneSidedPair
from accounting.law_pairs.registry import Coordinates, pair_of
from accounting.law_pairs.skellam_and_polya import PolyaDifferenceBelowOne, RevealingPair
from accounting.pairs.enclose_curve import as_ball
from accounting.pairs.finite import FinitePair
from accounting.pairs.pair import Pair, RayPair
from accounting.privacy_curves.release_curve import PairCurve, PrivacyCurve
from audit.claims import Claim
from audit.formats.result import computed, fact, members
from audit.targets.target import Law, Shifted
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.exp_field import ExpRational
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, at_least_zero, rational, rational_in

_BITS: Final = 64
_SHOWN: Final = 12
_INTERVAL_BITS: Final = 256

Mass: TypeAlias = Fraction | ExpRational


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    r"""A set of outputs, with its description and its probabilities under the two laws P and Q."""

    words: str
    p: Enclosure
    q: Enclosure


def hockey_stick(p: Law, q: Law, epsilon: RationalLike, *, bits: int = _BITS) -> Enclosure:
    r"""Bounds on delta(epsilon) = sum_x max(0, P(x) - e^epsilon Q(x)) for the laws P and Q.

    The relative distance of the bounds is about 2^-bits. Both are 0 if P <= e^epsilon Q everywhere.
    """
    level = at_least_zero("epsilon", epsilon)
    return _compare(p, q).enclose_delta(level, bits)


def epsilon_at(p: Law, q: Law, delta: RationalLike = 0, *, bits: int = _BITS) -> Enclosure:
    r"""Bounds on the least epsilon >= 0 with P(S) <= e^epsilon Q(S) + delta for all events S.

    P and Q are the two laws. The upper bound, or both bounds, may be infinite.
    """
    allowed = rational_in("delta", delta, "[0, 1)")
    return _compare(p, q).enclose_epsilon(allowed, bits)


def renyi(p: Law, q: Law, order: RationalLike, *, bits: int = _BITS) -> Enclosure:
    r"""Bounds on the Renyi divergence of P from Q, for a rational order > 1.

    The divergence is infinite if P has mass where Q has none.
    """
    a = rational("order", order)
    if a <= 1:
        raise InvalidParameter("order", order, "must be > 1")
    return _compare(p, q).enclose_renyi(a, bits)


def worst_event(p: Law, q: Law, epsilon: RationalLike) -> Event | None:
    r"""An event S that maximises P(S) - e^epsilon Q(S), for the laws P and Q.

    Returns None if the maximum is 0, or if no such event is computed, as for noise with several
    coordinates.
    """
    level, curve = at_least_zero("epsilon", epsilon), _compare(p, q)
    if isinstance(curve, _Table):
        return curve.event(level)
    match p, q:
        case Shifted(noise, int(here)), Shifted(_, int(there)):
            found = worst_interval(noise, here, there, level)
            if found is not None:
                in_p, in_q = (found.probability(noise, at, _BITS) for at in (here, there))
                return Event(words=found.words, p=in_p, q=in_q)
    return None


def _compare(p: Law, q: Law) -> PairCurve | _Table:
    # The curve of two shifts of one noise, or a table of two pmfs, which is empty for equal laws.
    match p, q:
        case Shifted(), Shifted():
            if p.noise != q.noise:
                raise InvalidParameter("q", q, f"must be a shift of the same noise as p = {p}")
            match p.shift, q.shift:
                case int(here), int(there):
                    return _Table([]) if here == there else shift_curve(p.noise, here, there)
                case tuple(here), tuple(there) if len(here) == len(there):
                    return _Table([]) if here == there else vectors(p.noise, here, there)
            raise InvalidParameter("q", q, f"must have as many coordinates as p = {p}")
        case Mapping(), Mapping():
            one, other = _read_pmf("p", p), _read_pmf("q", q)
            none = Fraction()
            seen = dict.fromkeys([*one, *other])
            return _Table([(x, one.get(x, none), other.get(x, none)) for x in seen])
    raise InvalidParameter("p, q", (p, q), "must be two pmfs or two shifts of one noise")


def _read_pmf(
    name: str, pmf: Mapping[Hashable, RationalLike | ExpRational]
) -> dict[Hashable, Mass]:
    exact: dict[Hashable, Mass] = {
        x: mass if isinstance(mass, ExpRational) else rational(f"{name}[{x!r}]", mass)
        for x, mass in pmf.items()
    }
    for x, mass in exact.items():
        if mass < 0:
            raise InvalidParameter(f"{name}[{x!r}]", str(mass), "must be >= 0")
    total = sum(exact.values(), Fraction())
    if total != 1:
        reason = "the masses must sum to exactly 1, but sum to this value"
        raise InvalidParameter(name, str(total), reason)
    return {x: mass for x, mass in exact.items() if mass}


@dataclass(frozen=True, slots=True)
class _Table:
    # The curve of two pmfs: rows (x, P(x), Q(x)), in which P(x) and Q(x) are not both 0.
    rows: list[tuple[Hashable, Mass, Mass]]

    def enclose_delta(self, level: Fraction, bits: int) -> Enclosure:
        above = [(p, q) for _, p, q in self.rows if _exceeds(p, q, level)]
        if not above:
            return Enclosure.exactly(0)
        in_p, in_q = (sum(masses, Fraction()) for masses in zip(*above, strict=True))
        times = _power_of_e(level, in_p, in_q)
        if times is not None:
            return _enclosed(in_p - times * in_q, bits)
        return narrow(lambda: _ball(in_p) - ball(level).exp() * _ball(in_q), bits)

    def enclose_epsilon(self, allowed: Fraction, bits: int) -> Enclosure:
        # Sorted by decreasing P/Q, exactly; Q = 0 first.
        rows = sorted(self.rows, key=lambda row: (row[1] == 0, row[2] / row[1] if row[1] else 0))
        best: Mass = Fraction(1)  # epsilon >= log 1 = 0
        sums = zip(
            accumulate(p for _, p, _ in rows), accumulate(q for _, _, q in rows), strict=True
        )
        for in_p, in_q in sums:
            if in_p > allowed:
                if in_q == 0:
                    return Enclosure.infinite()
                best = max(best, (in_p - allowed) / in_q)
        log = best.log if isinstance(best, ExpRational) else 0 if best == 1 else None
        return narrow(lambda: _ball(best).log(), bits) if log is None else Enclosure.exactly(log)

    def enclose_renyi(self, a: Fraction, bits: int) -> Enclosure:
        if any(p and not q for _, p, q in self.rows):
            return Enclosure.infinite()
        if all(p == q for _, p, q in self.rows):
            return Enclosure.exactly(0)
        shared = [(p, p / q) for _, p, q in self.rows if p]

        def divergence() -> arb:
            terms = (_ball(p) * _ball(ratio) ** ball(a - 1) for p, ratio in shared)
            return sum(terms, arb(0)).log() / ball(a - 1)

        return narrow(divergence, bits)

    def event(self, level: Fraction) -> Event | None:
        above = [row for row in self.rows if _exceeds(row[1], row[2], level)]
        if not above:
            return None
        named = [repr(x) for x, _, _ in above[:_SHOWN]]
        more = f" and {len(above) - _SHOWN} more" if len(above) > _SHOWN else ""
        return Event(
            words=f"output in {{{', '.join(named)}}}{more}",
            p=_enclosed(sum((p for _, p, _ in above), Fraction()), _BITS),
            q=_enclosed(sum((q for _, _, q in above), Fraction()), _BITS),
        )


def _ball(mass: Mass) -> arb:
    return mass.ball() if isinstance(mass, ExpRational) else ball(mass)


def _enclosed(mass: Mass, bits: int) -> Enclosure:
    return mass.enclose(bits) if isinstance(mass, ExpRational) else Enclosure.exactly(mass)


def _exceeds(p: Mass, q: Mass, level: Fraction) -> bool:
    # Whether p > e^level q. If e^level is not in the field of p and q, p/q differs from e^level
    # (Lindemann), so a sufficiently high precision decides.
    if not p or not q:
        return bool(p)
    times = _power_of_e(level, p, q)
    if times is not None:
        return p > times * q
    bits = _BITS
    while True:
        with precision(bits):
            excess = (_ball(p) / _ball(q)).log() - ball(level)
            if excess > 0 or excess < 0:
                return bool(excess > 0)
        bits *= 2


def _power_of_e(level: Fraction, *masses: Mass) -> Mass | None:
    # e^level as an element of the field of the masses, or None if it is not in the field.
    field = next((each for each in masses if isinstance(each, ExpRational)), None)
    if level == 0 or field is None:
        return Fraction(1) if level == 0 else None
    return field.power_of_e(level)


# -- two shifts of one noise ----------------------------------------------------------------------


class NeverWorse(NotDerived):
    r"""Raised for a direction whose privacy curve never exceeds that of the opposite direction."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OneWay(PairCurve):
    r"""The privacy curve of P against Q, two shifts of one noise, from one dominating pair."""

    theorem: ClassVar[str] = "the curve of the noise"

    pair: Pair
    scope: Scope = field(default=Scope())

    def products(self) -> tuple[Coordinates, ...]:
        return (((self.pair, 1),),)


def shift_curve(noise: Noise, p: int, q: int) -> OneWay:
    r"""The privacy curve of p + X against q + X, for a draw X of ``noise`` and integers p != q."""
    pair = pair_of(noise, abs(p - q))
    if isinstance(pair, OneSidedPair):
        pair = replace(pair, mirrored=p < q)
    elif isinstance(pair, RevealingPair) and p > q:
        raise NeverWorse(f"the curve of {noise!r} at {p} against {q}", "use the opposite direction")
    return OneWay(pair=pair)


def vectors(noise: Noise, p: tuple[int, ...], q: tuple[int, ...]) -> PairCurve:
    r"""The privacy curve of p + X against q + X for a vector X of independent noise draws."""
    changed = [(a, b) for a, b in zip(p, q, strict=True) if a != b]
    if len(changed) == 1:
        return shift_curve(noise, *changed[0])
    distances = tuple(abs(a - b) for a, b in changed)
    fair = isinstance(noise, Binomial) and noise.probability == Fraction(1, 2)
    if not (noise.symmetric or fair):
        raise NotDerived(f"several coordinates of {noise!r}", "use symmetric noise")
    return PrivacyCurve(noise=noise, sensitivity=Sensitivity.box(distances))


@dataclass(frozen=True, slots=True)
class OutputInterval:
    r"""The event first <= output <= last, where None stands for an infinite end."""

    first: int | None
    last: int | None

    @property
    def words(self) -> str:
        if self.last is None:
            return f"output >= {self.first}"
        if self.first is None:
            return f"output <= {self.last}"
        if self.first == self.last:
            return f"output = {self.first}"
        return f"{self.first} <= output <= {self.last}"

    def probability(self, noise: Noise, place: int, bits: int) -> Enclosure:
        if self.last is None and self.first is not None:
            return noise.enclose_sf(self.first - 1 - place, bits)
        if self.first is None and self.last is not None:
            return noise.enclose_cdf(self.last - place, bits)
        first, last = self.first or 0, self.last or 0
        if first == last:
            return noise.enclose_pmf(first - place, bits)
        return narrow(lambda: noise.sf_ball(first - 1 - place) - noise.sf_ball(last - place), bits)


def worst_interval(noise: Noise, p: int, q: int, level: Fraction) -> OutputInterval | None:
    r"""The interval of outputs whose privacy loss log(P(x)/Q(x)) exceeds ``level``.

    P and Q are ``noise`` shifted by ``p`` and ``q``. The result is the event that maximises P(S) -
    e^level Q(S). It may include outputs with a loss of exactly ``level``. Returns None if no output
    has a larger loss, or if the outputs with a larger loss may not form an interval.
    """
    pair = shift_curve(noise, p, q).pair
    if isinstance(pair, FinitePair):
        return None  # not an interval in general
    with precision(_INTERVAL_BITS):
        span = _span(pair, level)
    if span is None:
        return None
    first, last = span
    if isinstance(pair, RevealingPair):
        return OutputInterval(first + q, None if last is None else last + q)
    if p > q:
        return OutputInterval(p + first, None if last is None else p + last)
    return OutputInterval(None if last is None else p - last, p - first)


def _span(pair: Pair, level: Fraction) -> tuple[int, int | None] | None:
    # The interval of integers at which the loss of the pair exceeds the level.
    if isinstance(pair, RayPair):
        cell = pair.ray(level)
        return None if cell is None else (cell[1], None)
    above: Callable[[int], bool] = lambda m: bool(as_ball(pair.loss(m)) > ball(level))  # noqa: E731 - a def would only be longer
    anchor = next((m for m in (0, -1) if above(m)), None)
    if anchor is None:
        return None
    first = least(lambda m: m >= anchor or above(m), anchor)
    if isinstance(pair, PolyaDifferenceBelowOne) and level <= pair.tail_loss:
        return first, None
    return first, least(lambda m: m > anchor and not above(m), anchor + 1) - 1


# -- both directions, and the verdict on a claim --------------------------------------------------

Order: TypeAlias = Fraction | float
r"""An order of a Renyi divergence: a rational > 1, or ``math.inf``."""

Direction: TypeAlias = Literal["p_against_q", "q_against_p"]
Decided: TypeAlias = Literal["proven", "refuted", "undecided"]

_DECIDING: Final = (64, 256, 1024, 4096)
_TRANSCENDENTAL: Final = (*_DECIDING, 1 << 14, 1 << 16)
_MOST_TRIALS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    r"""Bounds on ``quantity`` (delta, epsilon or a Renyi divergence) in both directions.

    ``at`` is the epsilon, delta or order at which the quantity is evaluated.
    """

    quantity: Literal["delta", "epsilon", "renyi"]
    at: Order
    p_against_q: Enclosure | None = fact(
        "[lower, upper]; null if proven never to exceed the other direction"
    )
    q_against_p: Enclosure | None = fact(
        "[lower, upper] in the other direction; null if proven never to exceed p_against_q"
    )

    @property
    def ways(self) -> dict[Direction, Enclosure]:
        r"""The bounds by direction, except for a direction that was not computed."""
        both: dict[Direction, Enclosure | None] = {
            "p_against_q": self.p_against_q, "q_against_p": self.q_against_p
        }  # fmt: skip
        return {direction: way for direction, way in both.items() if way is not None}

    @computed("the larger of the two", before="p_against_q")
    def worse(self) -> Enclosure:
        found = self.ways.values()
        return Enclosure(max(way.lower for way in found), max(way.upper for way in found))


def delta_point(p: Law, q: Law, epsilon: Fraction) -> Point:
    r"""Bounds on the least delta at ``epsilon``, in both directions."""
    return _both("delta", epsilon, p, q, lambda one, other: hockey_stick(one, other, epsilon))


def epsilon_point(p: Law, q: Law, delta: Fraction) -> Point:
    r"""Bounds on the least epsilon at ``delta``, in both directions."""

    def smallest(one: Law, other: Law) -> Enclosure:
        try:
            found = epsilon_at(one, other, delta)
        except PrecisionExhausted:
            if (tables := _tabulated(one, other)) is None:
                raise
            return epsilon_at(*tables, delta)
        if delta or found.lower == found.upper or found.upper < math.inf:
            return found
        # epsilon(0) is the divergence of order infinity, an upper bound for all other orders.
        return max(found, renyi(one, other, 2), key=lambda enclosure: enclosure.lower)

    return _both("epsilon", delta, p, q, smallest)


def renyi_point(p: Law, q: Law, order: Order) -> Point:
    r"""Bounds on the Renyi divergence of an order, in both directions.

    The divergence of infinite order is the least epsilon at delta = 0.
    """
    if isinstance(order, float):
        if order != math.inf:
            raise InvalidParameter("order", order, "must be a rational > 1, or infinity")
        return replace(epsilon_point(p, q, Fraction()), quantity="renyi", at=order)
    return _both("renyi", order, p, q, lambda one, other: renyi(one, other, order))


def _both(
    quantity: Literal["delta", "epsilon", "renyi"],
    at: Order,
    p: Law,
    q: Law,
    enclose: Callable[[Law, Law], Enclosure],
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
    r"""The proof or refutation of one claimed point (epsilon, delta).

    ``delta`` bounds the least delta at the claimed epsilon, and ``epsilon`` the least epsilon at
    the claimed delta. ``epsilon`` is None if the least epsilon is discontinuous at that delta and
    no precision decides which side applies. If the claim is refuted, ``event`` violates it, or is
    None if no such event is known. The event is more likely under P if ``direction`` is
    "p_against_q". The verdict is "undecided" if the claimed delta lies between the bounds at the
    highest precision.
    """

    claim: Claim = fact("the claimed point", write=members("epsilon", "delta"))
    verdict: Decided = fact("the verdict on this point")
    delta: Point = fact("the smallest delta at the claimed epsilon")
    epsilon: Point | None = fact("the smallest epsilon at the claimed delta")
    direction: Direction | None = None
    event: Event | None = None


def decide(p: Law, q: Law, claim: Claim) -> Decision:
    r"""Decide whether P(S) <= e^epsilon Q(S) + delta and vice versa, for all events S.

    Every claim is decided for two pmfs whose masses are rational numbers, or rational functions of
    e^(-unit). The reason is that the least delta is either rational, and then computed exactly, or
    irrational (Lindemann), and then enough precision separates it from the claimed delta. Binomial
    noise in one coordinate, with at most 5,000 trials, is also such a pmf.
    """
    epsilon, delta = claim.exact
    reached = _both("delta", epsilon, p, q, lambda one, other: _settled(one, other, epsilon, delta))
    above = {way: found.lower for way, found in reached.ways.items() if found.lower > delta}
    proven = all(found.upper <= delta for found in reached.ways.values())
    worse = max(above, key=lambda way: above[way], default=None)
    one, other = (q, p) if worse == "q_against_p" else (p, q)
    needed: Point | None = None
    with suppress(PrecisionExhausted):
        needed = epsilon_point(p, q, delta)
    return Decision(
        claim=claim,
        verdict="refuted" if above else "proven" if proven else "undecided",
        delta=reached,
        epsilon=needed,
        direction=worse,
        event=None if worse is None else worst_event(one, other, epsilon),
    )


def _settled(p: Law, q: Law, epsilon: Fraction, delta: Fraction) -> Enclosure:
    # delta(epsilon) in one direction, narrow enough for comparison with the claimed delta if
    # possible.
    exact = not (isinstance(p, Shifted) or isinstance(q, Shifted))
    if exact and (rational := _if_rational(p, q, epsilon)) is not None:
        return Enclosure.exactly(rational)
    found = Enclosure(0, 1)  # contains every delta
    for bits in _TRANSCENDENTAL if exact else _DECIDING:
        try:
            found = hockey_stick(p, q, epsilon, bits=bits)
        except PrecisionExhausted:
            break
        if found.upper <= delta or found.lower > delta:
            return found
    tables = _tabulated(p, q)
    return found if tables is None else _settled(*tables, epsilon, delta)


def _if_rational(p: Law, q: Law, epsilon: Fraction) -> Fraction | None:
    # For pmfs with rational masses, delta = P(S) - e^epsilon Q(S) is rational if epsilon or Q(S) is
    # 0, and otherwise transcendental.
    event = worst_event(p, q, epsilon)
    if event is None:
        return Fraction()
    if event.p.width or event.q.width:
        return None  # masses in e^(-unit): `hockey_stick` is exact if delta is rational
    in_p, in_q = Fraction(event.p.lower), Fraction(event.q.lower)
    return in_p - in_q if epsilon == 0 or not in_q else None


def _tabulated(p: Law, q: Law) -> tuple[Law, Law] | None:
    # The pmfs of binomial noise in one coordinate, which have rational masses.
    match p, q:
        case Shifted(noise=Binomial() as noise, shift=int(here)), Shifted(shift=int(there)) if (
            noise.trials <= _MOST_TRIALS
        ):
            chance, trials = noise.probability, noise.trials
            masses = [
                math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
                for k in range(trials + 1)
            ]
            return dict(enumerate(masses, here)), dict(enumerate(masses, there))
    return None
