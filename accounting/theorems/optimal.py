r"""The optimal composition of one (epsilon, delta) claim with itself, in closed form.

Any (e, d)-DP pair is an image of this one: with probability d the output reveals the dataset, else
they are randomised response at e. After k rounds, however each is chosen from earlier outputs
(Kairouz, Oh and Viswanath 2015, Theorem 3.3; Murtagh and Vadhan 2016),

    1 - delta(E) = (1 - d)^k (1 - R(E))
    R(E) = sum over l < k/2 of C(k, l) (e^((k-l)e) - e^(E + l e))+ / (1 + e^e)^k

Both directions of the question are enclosed: no claim follows from the k claims that is smaller.
Proofs: docs/proofs/convert.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.claims.claim import Approx, Pure, Word
from accounting.claims.guarantee import at_least_zero, probability
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer

__all__ = ["epsilon_delta", "optimal_delta", "optimal_epsilon"]

_BITS: Final = 64
_MOST_ROUNDS: Final = 10**7


def optimal_delta(claim: Pure | Approx, rounds: int, epsilon: RationalLike) -> Enclosure:
    r"""The least delta at ``epsilon`` >= 0 that holds for ``rounds`` rounds of the claim.

    >>> optimal_delta(Pure("1/10"), 100, 10), optimal_delta(Approx(1, "1/2"), 2, 2).upper_float
    (Enclosure([0, 0]), 0.75...)

    Raises :class:`InvalidParameter` for another word, rounds < 1 or epsilon < 0.
    """
    each, hidden, k = _checked(claim, rounds)
    target = at_least_zero("epsilon", epsilon)
    if each * k <= target:
        if hidden == 0:
            return Enclosure.exactly(0)
        return _probability(narrow(lambda: _shown(hidden, k), _BITS))
    if hidden == 1:
        return Enclosure.exactly(1)

    def total() -> arb:
        found = arb(0)
        for lost, here, _ in _outcomes(each, k):
            if lost <= target:
                break
            found += here * -ball(target - lost).expm1()
        shown = _shown(hidden, k)
        return shown + (1 - shown) * found

    return _probability(narrow(total, _BITS))


def optimal_epsilon(claim: Pure | Approx, rounds: int, delta: RationalLike) -> Enclosure:
    r"""The least epsilon at ``delta`` in [0, 1] that holds for ``rounds`` rounds of the claim.

    Infinite where delta < 1 - (1 - d)^k: the output reveals the dataset more often than delta.

    >>> optimal_epsilon(Pure("1/10"), 100, 0), optimal_epsilon(Pure("1/10"), 100, "1e-6")
    (Enclosure([10, 10]), Enclosure([4.7..., 4.7...]))
    >>> optimal_epsilon(Approx(1, "1e-3"), 10, "1e-3")
    Enclosure([inf, inf])

    Raises :class:`InvalidParameter` for another word, rounds < 1 or delta outside [0, 1].
    """
    each, hidden, k = _checked(claim, rounds)
    target = probability("delta", delta)
    if target == 1 or (each == 0 and hidden == 0):
        return Enclosure.exactly(0)
    if hidden == 1:
        return Enclosure.infinite()
    if _all_shown(hidden, k, target):
        return Enclosure.exactly(k * each)
    if hidden and not narrow(partial(_share, hidden, k, target), _BITS).lower > 0:
        return Enclosure.infinite()
    if each == 0:
        return Enclosure.exactly(0)
    found = narrow(lambda: _least_epsilon(each, k, _share(hidden, k, target)), _BITS)
    return Enclosure(max(found.lower, Fraction(0)), min(found.upper, k * each))


def _least_epsilon(each: Fraction, rounds: int, share: arb) -> arb:
    # max over j of log((A_j - share)/B_j), A_j and B_j the masses of the j largest losses. The
    # ratio of j + 1 lies between that of j and e^(its own loss): it rises to its maximum, then
    # falls, and once it certainly falls the rest cannot matter.
    best, above, below = arb(1), -share, arb(0)
    for lost, here, there in _outcomes(each, rounds):
        if lost <= 0 or (below > 0 and above > ball(lost).exp() * below):
            break
        above, below = above + here, below + there
        best = best.max(above / below)
    return best.log()


def _outcomes(each: Fraction, rounds: int) -> Iterator[tuple[Fraction, arb, arb]]:
    # Loss and mass in both worlds of each number l of answers against the truth, losses falling.
    more = -ball(each).exp().log1p()
    here, there = (ball(rounds) * (ball(each) + more)).exp(), (ball(rounds) * more).exp()
    down, up = ball(-each).exp(), ball(each).exp()
    for against in range(rounds + 1):
        yield (rounds - 2 * against) * each, here, there
        chosen = ball(Fraction(rounds - against, against + 1))
        here, there = here * chosen * down, there * chosen * up


def _shown(hidden: Fraction, rounds: int) -> arb:
    # 1 - (1 - d)^k.
    return -(rounds * (-ball(hidden)).log1p()).expm1()


def _share(hidden: Fraction, rounds: int, delta: Fraction) -> arb:
    # The delta that is left to k rounds of randomised response.
    if hidden == 0:
        return ball(delta)
    return -((-ball(delta)).log1p() - rounds * (-ball(hidden)).log1p()).expm1()


def _all_shown(hidden: Fraction, rounds: int, delta: Fraction) -> bool:
    # Whether delta = 1 - (1 - d)^k, exactly: in lowest terms powers are taken of each part.
    kept, left = 1 - hidden, 1 - delta
    if left.denominator.bit_length() <= rounds * (kept.denominator.bit_length() - 1):
        return False
    return left == kept**rounds


def _probability(found: Enclosure) -> Enclosure:
    return Enclosure(max(found.lower, Fraction(0)), min(found.upper, Fraction(1)))


def _checked(claim: Pure | Approx, rounds: int) -> tuple[Fraction, Fraction, int]:
    k = integer("rounds", rounds, at_least=1, at_most=_MOST_ROUNDS)
    return *epsilon_delta(claim), k


def epsilon_delta(claim: Word) -> tuple[Fraction, Fraction]:
    r"""The two numbers of a Pure or Approx claim.

    >>> epsilon_delta(Pure("1/10"))
    (Fraction(1, 10), Fraction(0, 1))

    Raises :class:`InvalidParameter` for another word.
    """
    match claim:
        case Pure():
            return claim.stated_epsilon, Fraction(0)
        case Approx():
            return claim.stated_epsilon, claim.stated_delta
    raise InvalidParameter("claim", claim, "must be a Pure or Approx claim: convert it first")
