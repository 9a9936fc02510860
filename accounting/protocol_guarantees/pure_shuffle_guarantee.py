r"""Certify pure DP from shuffling: a bound on the loss of :class:`PureShuffle` at every output.

Let g be the precision. Laws are written as polynomials in z, where the coefficient of z^k is the
probability of k. The message of a user with value x in {0, ..., g} has the law z^x V + tau U. Here
V contains the probabilities of the noise within the reach, tau is the probability of a cover, that
is, a random message, and U is the uniform law of a cover. The server sees the sum of n messages.
For any two values x, x' of one user let f = V (e^eps z^x - z^x') + (e^eps - 1) tau U. The loss is
at most eps if f times the product of the others' laws has no negative coefficient.

Expand this product over the possible sets of users who send covers. The values of the others are
then only a shift, so all values are equivalent. Write f >= 0 if no coefficient of f is negative.
Let h be the number of honest users and t any number. It suffices that

- U^t f >= 0, for t or more covers;
- V^(h-t) f >= 0, for fewer covers. Let G be V without the noise 0. If G^b f >= 0 for some b,
  the condition on V^(h-t) f needs to be checked only near the centre.

Each of the three conditions gives an enclosure of the least e^eps for which it holds, namely the
largest ratio (A + tau K)/(a + tau K) over all outputs: A and a are the largest and the least mass
of the noise over all values x, and K is the mass of covers. Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from flint import arb, arb_poly, ctx, fmpz_poly

from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import PureBound
from dpcore.errors import InvalidParameter
from dpcore.laws.polya import PolyaDifference
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational_in
from dpcore.protocols.shuffled_bits import PureShuffle

MOST_WIDTH: Final = 1 << 12
"""The longest message that is certified; the time grows faster than the square of the length."""

_GUARD: Final = 96
_MOST_COVERS: Final = 64
_MOST_JUMPS: Final = 16
_FIRST: Final = 4
_BEYOND: Final = 2
_ROUNDED: Final = 10**9
_LOG2_E: Final = 1.4427
_REACH: Final = 2
_LEAST_REACH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CertifiedShuffle(PureBound):
    r"""The epsilon of ``protocol`` with ``honest`` honest users, as proven by :func:`purity`."""

    protocol: PureShuffle
    honest: int


def certified_shuffle(protocol: PureShuffle, honest: int) -> CertifiedShuffle:
    r"""The guarantee epsilon = g/scale; raises :class:`NotDerived` if it cannot be certified.

    Here g is the precision of the protocol, and the scale is that of its noise.
    """
    found, own = purity(protocol, honest), protocol.precision / protocol.share.scale
    if found != PureBound(own):
        raise NotDerived(f"pure DP at epsilon = {own}", f"only {found!r} is certified")
    return CertifiedShuffle(stated_epsilon=own, protocol=protocol, honest=honest)


@lru_cache(maxsize=1 << 8)
def purity(protocol: PureShuffle, honest: int) -> PureBound:
    r"""The pure-DP guarantee of ``protocol`` with ``honest`` honest users, proven for every output.

    Its epsilon is the maximum of g/scale and the three bounds on the loss in the module docstring,
    where g is the precision and the scale is that of the noise.
    """
    if not isinstance(protocol, PureShuffle):
        raise InvalidParameter("protocol", protocol, "must be a PureShuffle")
    present = integer("honest", honest, at_least=1, at_most=protocol.users, limit="users")
    if protocol.width > MOST_WIDTH:
        reason = f"must have messages of at most {MOST_WIDTH} bits, not {protocol.width}"
        raise InvalidParameter("protocol", protocol, reason)
    own = Fraction(protocol.precision) / protocol.share.scale
    # The number t of covers for which the shares were planned, if it suffices; otherwise the least.
    loss = lru_cache(partial(_loss_of_covers, protocol))
    covers = present + 1 - math.ceil(1 / Fraction(protocol.share.shape))
    if not 1 <= covers <= _MOST_COVERS or loss(covers) > own:
        covers = _fewest_covers(loss, own)
    of_covers = loss(covers)
    jumps, of_jumps = _FIRST, _loss_of_jumps(protocol, _FIRST)
    while of_jumps > own and jumps < _MOST_JUMPS:
        jumps *= 2
        of_jumps = _loss_of_jumps(protocol, jumps)
    # Fewer than t of the h - 1 others send covers; if t = 0 suffices, nothing more is needed.
    others = max(present - max(covers, 1), 0)
    centre = _loss_at_centre(protocol, others, jumps)
    worst = max(of_covers, of_jumps, centre)
    if worst > own:
        worst = Fraction(math.ceil(worst * _ROUNDED), _ROUNDED)
    return PureBound(max(worst, own))


def plan_pure_shuffle(
    *,
    users: int,
    epsilon: RationalLike,
    honest: int | None = None,
    precision: int = 1,
    failure: RationalLike = "1e-6",
) -> PureShuffle:
    r"""Choose parameters for epsilon-DP with ``honest`` honest users (all users by default).

    A cover is a random message. Some message is a cover with probability about ``failure``. The
    noise is limited to a reach of about 2 (g/epsilon) ln(1/c), where g is ``precision`` and c is
    the probability that a given message is a cover. The result is not certified; use
    :func:`purity`.
    """
    n, g = integer("users", users, at_least=1), integer("precision", precision, at_least=1)
    h = n if honest is None else integer("honest", honest, at_least=1, at_most=n, limit="users")
    e = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise")
    q = rational_in("failure", failure, "(0, 1)", "pure DP needs rare random messages")
    # The largest power of two that is at most failure/n.
    power = (-(-n * q.denominator // q.numerator) - 1).bit_length()
    scale = g / e
    reach = g * _LEAST_REACH + math.ceil(_REACH * float(scale) * power * math.log(2))
    if 2 * reach + g > MOST_WIDTH:
        needed = f"needs messages of {2 * reach + g} bits, above the limit of {MOST_WIDTH}"
        if g > 1:
            raise InvalidParameter("precision", precision, f"{needed}: use a smaller value")
        raise InvalidParameter("epsilon", epsilon, f"{needed}: use a larger value")

    def of(shares: int) -> PureShuffle:
        return PureShuffle(
            users=n,
            precision=g,
            reach=reach,
            cover=Fraction(1, 1 << power),
            share=PolyaDifference(shape=Fraction(1, shares), scale=scale),
        )

    covers = _planned_covers(of(1 << (h.bit_length() - 1)))
    return of(max(min(h, h - covers + 1), 1))


# -- three bounds on the loss -----------------------------------------------------------------


@lru_cache(maxsize=1 << 8)
def _planned_covers(protocol: PureShuffle) -> int:
    goal = Fraction(protocol.precision) / protocol.share.scale
    return _fewest_covers(partial(_loss_of_covers, protocol), goal)


def _fewest_covers(loss: Callable[[int], Fraction], goal: Fraction) -> int:
    # The least number of covers whose loss is at most the goal, or _MOST_COVERS. The loss decreases
    # in the number of covers.
    return least(lambda t: t >= _MOST_COVERS or (t >= 0 and loss(t) <= goal), _FIRST)


def _loss_of_covers(protocol: PureShuffle, t: int) -> Fraction:
    with precision(_GUARD + 2 * protocol.width.bit_length()):
        law = _Law.of(protocol)
        covers = arb_poly(fmpz_poly([1] * (protocol.width + 1)) ** t)
        return _loss(law, _wide(covers * law.noise, law), (covers * law.cover).coeffs())


def _loss_of_jumps(protocol: PureShuffle, b: int) -> Fraction:
    with precision(_GUARD + _bits_of(protocol, b + 1)):
        law = _Law.of(protocol)
        listed = law.noise.coeffs()
        listed[protocol.reach] = arb(0)
        # The loss does not depend on the scale, which only affects the precision.
        jumps = (arb_poly(listed) * (1 / sum(listed, arb(0)))) ** b
        return _loss(law, _wide(jumps * law.noise, law), (jumps * law.cover).coeffs())


def _loss_at_centre(protocol: PureShuffle, others: int, jumps: int) -> Fraction:
    # Coefficients beyond the window are dropped, which reduces the other coefficients by at most
    # ``lost`` in total: these are valid lower bounds, and valid upper bounds after ``lost`` is
    # added.
    reach, half = protocol.reach, (jumps + _BEYOND) * protocol.reach
    with precision(_GUARD + _bits_of(protocol, jumps + _BEYOND)):
        law = _Law.of(protocol)
        many = _power(law.noise, others, half)
        more = _cut(many * law.noise, half)
        lost = arb(0)
        if (others + 1) * reach > half:
            lost = sum(law.noise.coeffs(), arb(0)) ** (others + 1) - sum(more.coeffs(), arb(0))
        covers = (many * law.cover).coeffs()
        noise = more.coeffs()
        first, last = -jumps * reach, jumps * reach + protocol.precision
        middle, offset = len(noise) // 2, reach + many.length() // 2
        before = range(first - protocol.precision, last + 1)
        window = [_at(noise, place + middle) for place in before]
        masses = [_at(covers, place + offset) for place in range(first, last + 1)]
        return _loss(law, window, masses, lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    # V, U and tau at the ambient precision; index 0 of U is the output without ones.
    noise: arb_poly
    cover: arb_poly
    chance: arb
    precision: int

    @classmethod
    def of(cls, protocol: PureShuffle) -> _Law:
        width = protocol.width + 1
        masses = _masses(protocol.share, protocol.reach, ctx.prec)
        kept = [ball(1 - protocol.cover) * mass for mass in masses]
        chance = 1 - 2 * sum(kept, arb(0)) + kept[0]
        return cls(
            noise=arb_poly([*kept[:0:-1], *kept]),
            cover=arb_poly([1 / arb(width)] * width),
            chance=chance,
            precision=protocol.precision,
        )


@lru_cache(maxsize=16)
def _masses(share: PolyaDifference, reach: int, bits: int) -> list[arb]:
    # P(Z = j), j = 0, ..., J, of the difference of two Polya draws of shape r <= 1: sums of
    # products of P(X = k), which decreases in k, so the terms omitted from the sum over k < M are
    # at most P(X = M) in total.
    beta, shape = (-1 / ball(Fraction(share.scale))).exp(), ball(Fraction(share.shape))
    many = reach + math.ceil(bits * Fraction(share.scale) * Fraction(7, 10)) + 1
    draws = [(1 - beta) ** shape]
    for k in range(many):
        draws.append(draws[-1] * beta * (shape + k) / (k + 1))
    rest = draws.pop()
    found = (arb_poly(draws) * arb_poly(draws[::-1])).coeffs()
    return [each + rest.union(arb(0)) for each in found[many - 1 : many + reach]]


def _loss(law: _Law, noise: Sequence[arb], covers: Sequence[arb], lost: arb | int = 0) -> Fraction:
    # The log of the largest (A + tau K)/(a + tau K): at each index s, A and a are the largest and
    # least of noise[s], ..., noise[s + g], and K is covers[s]. Impossible outputs have no loss.
    most, fewest = (_sliding(noise, law.precision + 1, pick) for pick in (arb.max, arb.min))
    worst = arb(1)
    for high, low, cover in zip(most, fewest, covers, strict=True):
        if not (high + lost).is_zero():
            known = law.chance * cover
            worst = worst.max((high + lost + known) / (low + known))
    found = Enclosure.of(worst.log()).upper if worst.is_finite() else math.inf
    if found == math.inf:
        raise NotDerived(
            "a pure-DP guarantee for shuffled bits",
            "the bound on the loss at some output is infinite",
        )
    return Fraction(found)


def _wide(noise: arb_poly, law: _Law) -> list[arb]:
    # The masses of the noise, with g zeros on both sides: `_loss` needs g + 1 of them per output.
    around = [arb(0)] * law.precision
    return [*around, *noise.coeffs(), *around]


def _sliding(values: Sequence[arb], width: int, pick: Callable[[arb, arb], arb]) -> list[arb]:
    # The largest or least of every ``width`` adjacent values, by doubling.
    found, reached = [*values], 1
    while reached < width:
        step = min(reached, width - reached)
        found = [pick(a, b) for a, b in zip(found, found[step:], strict=False)]
        reached += step
    return found


def _power(base: arb_poly, exponent: int, half: int) -> arb_poly:
    found = arb_poly([1])
    for bit in f"{exponent:b}":
        found = _cut(found * found, half)
        if bit == "1":
            found = _cut(found * base, half)
    return found


def _cut(poly: arb_poly, half: int) -> arb_poly:
    centre = poly.length() // 2
    return arb_poly(poly.coeffs()[max(centre - half, 0) : centre + half + 1])


def _at(listed: Sequence[arb], place: int) -> arb:
    return listed[place] if 0 <= place < len(listed) else arb(0)


def _bits_of(protocol: PureShuffle, reaches: int) -> int:
    # log2(1/mass) of the noise at a distance of that many times the reach, up to a constant.
    return math.ceil(_LOG2_E * reaches * protocol.reach / protocol.share.scale)
