r"""The exact value of a claim, if it is known to be rational.

Only for such claims may the lower and the upper bound be equal. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.proof_kernel.law_tables import Refused
from accounting.proof_kernel.worst_case_neighbours import Part

_MOST_TRIALS: Final = 4096
_MOST_BITS: Final = 1 << 16


@lru_cache(maxsize=128)
def exact_value(parts: tuple[Part, ...], quantity: str, at: Fraction) -> Fraction:
    r"""The exact value of a ``quantity`` of a composition, if it is rational.

    ``quantity`` is "pure", "epsilon", "delta", "zcdp" or "renyi". ``at`` is the delta at which an
    "epsilon" is asked for, the epsilon of a "delta", or the order of a "renyi". Let s be the scale
    and v the variance of the noise, D_1 and D_2 the l1 and l2 sensitivity, and d the change of one
    coordinate. The following values are known to be rational:

    - the largest loss ("pure", or "epsilon" at delta 0): D_1/s for (discrete) Laplace noise and for
      Polya differences of shape >= 1, a multiple of the epsilon of staircase noise, and the epsilon
      of a pure claim;
    - delta at an epsilon that is at least the largest loss: 1 - prod (1 - delta)^rounds over all
      stated (epsilon, delta) claims;
    - delta of one round of binomial noise: at epsilon = 0, and 1 if neighbours share no output;
    - rho ("zcdp"): D_2^2/(2v) for Gaussian noise, epsilon^2/2 for a pure claim, or a stated rho;
    - the Renyi divergence of order alpha: alpha rho for real Gaussian noise, and alpha d^2/(2nv)
      for a sum of n >= 1 discrete Gaussians if n divides d and (alpha - 1) d.

    Raises :class:`Refused` if the value is not known to be rational.
    """
    match quantity:
        case "zcdp":
            return sum((_rho(part) * part.rounds for part in parts), Fraction(0))
        case "renyi":
            return sum((_renyi(part, at) * part.rounds for part in parts), Fraction(0))
        case "delta":
            return _delta(parts, at)
        case "epsilon" if at:
            raise Refused("epsilon is not rational")
    return sum((_largest_loss(part) * part.rounds for part in parts), Fraction(0))


def _largest_loss(part: Part) -> Fraction:
    if part.sampling is not None:
        raise Refused("the largest loss of a part with subsampling is not rational")
    match part.law, part.parameters:
        case "pure", (epsilon,):
            return epsilon
        case (("discrete-laplace" | "laplace"), (scale,)):
            return sum(part.amounts) / scale
        case "staircase", (epsilon, step, _) if part.norm in ("absolute", "box"):
            return epsilon * sum(math.ceil(each / step) for each in part.amounts)
        case "polya-difference", (shape, scale) if shape >= 1 and part.norm in ("absolute", "box"):
            return sum(part.amounts) / scale
    raise Refused("the largest loss of a part is infinite or irrational")


def _squared(part: Part) -> Fraction:
    if part.sampling is not None or part.correlated is not None:
        raise Refused("no exact rho is known for a part with subsampling or correlated noise")
    several = part.amounts if part.norm != "l2-squared" else ()
    return Fraction(sum(step**2 for step in several) or part.amounts[0])


def _rho(part: Part) -> Fraction:
    match part.law, part.parameters:
        case "zcdp", (rho,):
            return rho
        case "pure", (epsilon,):
            return epsilon**2 / 2
        case "discrete-gaussian", (variance,):
            return _squared(part) / (2 * variance)
        case "gaussian", (sigma,):
            return _squared(part) / (2 * sigma**2)
    raise Refused("no exact rho is known for this part")


def _renyi(part: Part, order: Fraction) -> Fraction:
    match part.law, part.parameters:
        case "gaussian", _:
            return order * _rho(part)
        case "discrete-gaussian", (variance,):
            count = Fraction(1)
        case "discrete-gaussian-sum", (count, variance):
            pass
        case _:
            raise Refused("the Renyi divergence is not known to be rational")
    steps = [1] if part.norm == "l2-squared" else part.amounts
    whole = ((step / count, (order - 1) * step / count) for step in steps)
    if any(each.denominator > 1 for both in whole for each in both):
        raise Refused("the Renyi divergence is not known to be rational")
    return order * _squared(part) / (2 * count * variance)


def _delta(parts: tuple[Part, ...], epsilon: Fraction) -> Fraction:
    if len(parts) == 1 and parts[0].law == "binomial":
        return _of_binomial(parts[0], epsilon)
    kept, largest, bits = Fraction(1), Fraction(0), 0
    for part in parts:
        if part.law == "approx":
            loss, lost = part.parameters
            bits += part.rounds * lost.denominator.bit_length()
            if bits > _MOST_BITS:
                raise Refused("the exact delta has too many digits")
            kept *= (1 - lost) ** part.rounds
            largest += part.rounds * loss
        else:
            largest += part.rounds * _largest_loss(part)
    if epsilon < largest:
        raise Refused("a delta below the largest loss is not rational")
    return 1 - kept


def _of_binomial(part: Part, epsilon: Fraction) -> Fraction:
    (trials, p), step = part.parameters, max(part.amounts)
    one_round = part.rounds == 1 and part.sampling is None
    if one_round and step > trials and part.norm in ("absolute", "box"):
        return Fraction(1)
    short = trials <= _MOST_TRIALS and trials * p.denominator.bit_length() <= _MOST_BITS
    if not (one_round and short and part.norm == "absolute" and epsilon == 0):
        raise Refused("the delta of binomial noise is not known to be rational")
    # The total variation distance, in units of p.denominator^-n: the sum of (P - Q)+, which is
    # equal in both directions.
    n, one, other = int(trials), p.numerator, p.denominator - p.numerator
    masses = [math.comb(n, k) * one**k * other ** (n - k) for k in range(n + 1)]
    moved = [0] * step + masses[: n + 1 - step]
    total = sum(max(a - b, 0) for a, b in zip(masses, moved, strict=True))
    return Fraction(total, p.denominator**n)
