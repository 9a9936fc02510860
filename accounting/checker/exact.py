r"""The claims whose value is a rational: computed in rationals, and compared without any rounding.

Only these may be stated with two equal ends.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.checker.laws.correlated import Correlated
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.text.reading import Claim, Part

__all__ = ["exact_pure", "exact_value", "exact_zcdp"]

_MOST_TRIALS: Final = 4096
_MOST_BITS: Final = 1 << 16


def exact_pure(parts: tuple[Part, ...]) -> Fraction:
    r"""sup of the total loss: Delta/s for a discrete Laplace or a Polya difference of shape >= 1.

    Raises :class:`Unchecked` for laws whose largest loss is infinite or no rational.
    """
    total = Fraction(0)
    for part in parts:
        match part:
            case Part(sampling=str()):
                raise Unchecked("the largest loss of a sampled part is no rational")
            case Part(stated=("pure", (epsilon,))):
                total += part.rounds * epsilon
            case Part(law=Law(name="discrete-laplace" | "laplace", parameters=(scale,))):
                total += part.rounds * sum(part.amounts) / scale
            case Part(law=Law(name="polya-difference", parameters=(shape, scale))) if (
                shape >= 1 and part.norm in ("absolute", "box")
            ):
                total += part.rounds * sum(part.amounts) / scale
            case _:
                raise Unchecked("the largest loss of a part is infinite, or not a rational")
    return total


def exact_zcdp(parts: tuple[Part, ...]) -> Fraction:
    r"""Sum of Delta_2^2/2v of discrete Gaussians, epsilon^2/2 of pure claims, and stated rhos."""
    total = Fraction(0)
    for part in parts:
        match part:
            case Part(sampling=str()) | Part(correlated=Correlated()):
                raise Unchecked("no exact rho of a sampled part, or of correlated noise")
            case Part(stated=("zcdp", (rho,))):
                total += part.rounds * rho
            case Part(stated=("pure", (epsilon,))):
                total += part.rounds * epsilon**2 / 2
            case Part(law=Law(name="discrete-gaussian" | "gaussian" as name, parameters=(v,))):
                squared = sum(step**2 for step in part.amounts)
                if part.norm == "l2-squared":
                    squared = part.amounts[0]
                total += part.rounds * squared / (2 * (v if name == "discrete-gaussian" else v**2))
            case _:
                raise Unchecked("no exact rho of a part")
    return total


@lru_cache(maxsize=128)
def exact_value(parts: tuple[Part, ...], claim: Claim) -> Fraction | None:
    r"""What is claimed, where that is known to be a rational; None where it is not known to be.

    Delta beyond the largest loss is what is stated to fail: 1 - prod (1 - delta)^rounds, 0 for a
    noise. Delta of one round of a binomial is rational at epsilon = 0, and 1 where the two worlds
    share no value. Discrete Gaussians have D_alpha = alpha d^2/2v where (alpha - 1) d is whole;
    sums of n of them that of variance nv, where n divides d and (alpha - 1) d. Epsilon at delta = 0
    is the largest loss.
    """
    try:
        match claim.quantity:
            case "epsilon" if claim.at == 0:
                return exact_pure(parts)
            case "delta":
                return _delta(parts, claim.at)
            case "renyi":
                return _renyi(parts, claim.at)
    except Unchecked:
        pass
    return None


def _delta(parts: tuple[Part, ...], epsilon: Fraction) -> Fraction | None:
    match parts:
        case (
            Part(
                law=Law(name="binomial", parameters=(trials, p)), rounds=1, norm=norm, sampling=None
            ),
        ):
            step = max(parts[0].amounts)
            if step > trials and norm in ("absolute", "box"):
                return Fraction(1)
            if norm == "absolute" and epsilon == 0 and trials <= _MOST_TRIALS:
                return _variation(int(trials), p, step)
            return None
    shown, largest, bits = Fraction(1), Fraction(0), 0
    for part in parts:
        if part.stated is not None and part.stated[0] == "approx":
            loss, lost = part.stated[1]
            bits += part.rounds * lost.denominator.bit_length()
            if bits > _MOST_BITS:
                raise Unchecked("too long a rational")
            shown *= (1 - lost) ** part.rounds
            largest += part.rounds * loss
        else:
            largest += exact_pure((part,))
    return 1 - shown if epsilon >= largest else None


def _variation(trials: int, p: Fraction, step: int) -> Fraction | None:
    # In units of the last place: sum of (P - Q)+, which is the same in both directions.
    if trials * p.denominator.bit_length() > _MOST_BITS:
        return None
    one, other, whole = p.numerator, p.denominator - p.numerator, p.denominator**trials
    masses = [math.comb(trials, k) * one**k * other ** (trials - k) for k in range(trials + 1)]
    moved = [0] * step + masses[: trials + 1 - step]
    return Fraction(sum(max(a - b, 0) for a, b in zip(masses, moved, strict=True)), whole)


def _renyi(parts: tuple[Part, ...], order: Fraction) -> Fraction | None:
    total = Fraction(0)
    for part in parts:
        match part:
            case Part(sampling=str()) | Part(correlated=Correlated()):
                return None
            case Part(law=Law(name="gaussian")):
                total += order * exact_zcdp((part,))
            case Part(
                law=Law(name="discrete-gaussian" | "discrete-gaussian-sum", parameters=found)
            ):
                count, v = (Fraction(1), *found) if len(found) == 1 else found
                steps = [1] if part.norm == "l2-squared" else part.amounts
                if any((step / count).denominator > 1 for step in steps):
                    return None
                if any(((order - 1) * step / count).denominator > 1 for step in steps):
                    return None
                squared = sum(step**2 for step in steps)
                if part.norm == "l2-squared":
                    squared = part.amounts[0]
                total += part.rounds * order * squared / (2 * count * v)
            case _:
                return None
    return total
