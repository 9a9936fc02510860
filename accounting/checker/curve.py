r"""delta(epsilon) of the parts of a certificate: the worst over all lists that they stand for.

Also what that needs listed, for a certificate may ask for too much. Proofs: docs/proofs/checker.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from accounting.checker.alone import deltas_of_one, knows, listed_values
from accounting.checker.exact import exact_value
from accounting.checker.laws.density import Density
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.losses import Losses, losses_of, randomised_response, sampled_losses
from accounting.checker.laws.masses import REAL, effort, reach, real
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.rounds import Rounds, alternatives
from accounting.checker.sums.tilt import Listed
from accounting.checker.sums.totals import deltas, far_below
from accounting.checker.text.reading import Claim, Part

__all__ = ["allowed", "largest", "largest_loss", "listings", "worst_deltas"]

_MOST_ATOMS: Final = 1 << 17


def worst_deltas(
    parts: tuple[Part, ...], epsilons: Sequence[Fraction], room: Fraction, wanted: Wanted
) -> list[Value]:
    r"""The largest delta at each epsilon; listings leave out a 4000th of ``room`` at most.

    Of several lists one may be out of reach: then a bound of it enters the error.

    Raises :class:`Unchecked` where none, or the only one, is within reach.
    """
    lists = alternatives(parts)
    found: list[list[Value]] = []
    refused: Unchecked | None = None
    for rounds in lists:
        try:
            found.append(_at(rounds, epsilons, room, wanted))
        except Unchecked as error:
            refused = error
            if len(lists) == 1:
                raise
            found.append(far_below(_laws(rounds, _surprise(rounds, room)), epsilons))
    if refused is not None and all(each.value == 0 for row in found for each in row):
        raise refused
    return [largest(list(each)) for each in zip(*found, strict=True)]


def largest(found: Sequence[Value]) -> Value:
    r"""The largest value, with the largest error."""
    return Value(value=max(each.value for each in found), error=max(each.error for each in found))


def largest_loss(rounds: tuple[Rounds, ...]) -> Value:
    r"""What bounds the loss, for a law with a bounded one: its least upper bound to 2^-139."""
    total = Fraction(0)
    for each in rounds:
        one = _listed(each, 80.0)
        most = Fraction(0) if one is None else one.most
        if not isinstance(most, Fraction):
            return Value(value=REAL.inf, error=REAL.zero)
        total += each.count * most
    count = sum(each.count for each in rounds)
    return Value(value=real(total), error=count * REAL.mpf(2) ** -138)


def listings(parts: tuple[Part, ...], claim: Claim) -> Iterator[tuple[object, int]]:
    r"""What the claim needs listed, and how many values each listing holds."""
    if claim.quantity in ("pure", "zcdp") or exact_value(parts, claim) is not None:
        return
    for rounds in alternatives(parts):
        alone = _alone(rounds)
        if alone is not None and claim.quantity != "renyi" and allowed(claim):
            yield listed_values(alone, rounds[0].step, _surprise(rounds, allowed(claim)))
            continue
        for each in rounds:
            if each.law is None or each.squared is not None:
                continue
            kind = (claim, each.law, each.step, each.mirrored, each.rate, each.way)
            if each.law.name == "discrete-laplace":
                yield kind, each.step + 1
                continue
            room = Fraction(0) if claim.quantity == "renyi" else allowed(claim)
            low, high = reach(each.law, _surprise(rounds, room) if room else 80.0)
            wider = each.step if each.rate < 1 else 0
            yield kind, effort(each.law, high - low + 1 + wider)


def allowed(claim: Claim) -> Fraction:
    r"""The error of delta that a claim leaves room for."""
    return claim.unit if claim.quantity == "delta" else claim.at * min(claim.unit, Fraction(1))


def _surprise(rounds: tuple[Rounds, ...], room: Fraction) -> float:
    # What the listings leave out is a 4000th of the error allowed, over all rounds.
    share = room / (4096 * 64 * sum(each.count for each in rounds))
    return math.log(share.denominator) - math.log(share.numerator)


def _alone(rounds: tuple[Rounds, ...]) -> Law | None:
    # The law of a single round that needs no list of losses.
    law = rounds[0].law
    single = sum(each.count for each in rounds) == 1 and law is not None and knows(law)
    return law if single and rounds[0].rate == 1 else None


def _at(
    rounds: tuple[Rounds, ...], epsilons: Sequence[Fraction], room: Fraction, wanted: Wanted
) -> list[Value]:
    count, surprise = sum(each.count for each in rounds), _surprise(rounds, room)
    alone = _alone(rounds)
    if alone is not None:
        return deltas_of_one(alone, rounds[0].step, epsilons, surprise)
    listed = _laws(rounds, surprise)
    if sum(len(one.here) for one, _ in listed if isinstance(one, Losses)) > _MOST_ATOMS:
        raise Unchecked(f"more than {_MOST_ATOMS} losses in all")
    dropped = 2 * count * REAL.exp(-REAL.mpf(surprise))
    return deltas(listed, epsilons, wanted, dropped)


def _laws(rounds: tuple[Rounds, ...], surprise: float) -> Listed:
    listed = ((_listed(each, surprise), each.count) for each in rounds)
    return [(one, count) for one, count in listed if one is not None]


def _listed(each: Rounds, surprise: float) -> Losses | Density | None:
    if each.density is not None:
        return each.density
    if each.law is not None:
        if each.rate < 1:
            return sampled_losses(each.law, each.step, surprise, each.rate, each.way)
        return losses_of(each.law, each.step, surprise, each.mirrored)
    epsilon, lost = each.stated
    return randomised_response(epsilon, lost) if epsilon or lost else None
