r"""Exact Bernoulli and geometric draws from fair bits, by integer arithmetic.

The reference samplers use these functions of Canonne, Kamath and Steinke, "The Discrete Gaussian
for Differential Privacy" (arXiv 2004.00010v5), Algorithm 1 and the first loop of Algorithm 2.
Proofs: docs/proofs/rng.md; tests enumerate the random bits and compare the laws.
"""

from __future__ import annotations

from fractions import Fraction

from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng


def bernoulli(rng: Rng, probability: Fraction) -> bool:
    r"""Return True with probability exactly ``probability``, a rational in [0, 1]."""
    if not 0 <= probability <= 1:
        raise InvalidParameter("probability", probability, "must lie in [0, 1]")
    return rng.below(probability.denominator) < probability.numerator


def bernoulli_exp(rng: Rng, exponent: Fraction) -> bool:
    r"""Return True with probability exactly e^(-x), for a rational x >= 0 (Algorithm 1).

    For x <= 1, let K be the first k with a failed Bernoulli(x/k). Then P(K > k) = x^k/k!, and
    P(K odd) = 1 - x + x^2/2! - ... = e^(-x). For larger x, e^(-x) is a product of factors e^(-1)
    and one e^(-(x - floor(x))): the factors are drawn until one fails.
    """
    if exponent < 0:
        raise InvalidParameter("exponent", exponent, "must be >= 0")
    while exponent > 1:
        if not _bernoulli_exp_unit(rng, Fraction(1)):
            return False
        exponent -= 1
    return _bernoulli_exp_unit(rng, exponent)


def _bernoulli_exp_unit(rng: Rng, exponent: Fraction) -> bool:
    trial = 1
    while bernoulli(rng, exponent / trial):
        trial += 1
    return trial % 2 == 1


def geometric_exp(rng: Rng, exponent: Fraction) -> int:
    r"""Return k >= 0 with probability exactly (1 - e^(-x)) e^(-kx), for a rational x > 0.

    With x = n/d (Canonne, Kamath and Steinke, Algorithm 2, lines 2-9): let U be uniform on
    {0, ..., d-1}, accepted with probability e^(-U/d), and V the number of successes of
    Bernoulli(e^(-1)) before the first failure. Then P(U + dV = u) is proportional to e^(-u/d), and
    floor((U + dV)/n) is geometric.
    """
    if exponent <= 0:
        raise InvalidParameter("exponent", exponent, "must be > 0")
    step, unit = exponent.numerator, exponent.denominator
    while True:
        fraction = rng.below(unit)
        if bernoulli_exp(rng, Fraction(fraction, unit)):
            break
    whole = 0
    while bernoulli_exp(rng, Fraction(1)):
        whole += 1
    return (fraction + unit * whole) // step
