r"""Choose the noise of averages: the least that keeps (epsilon, delta), or a paper's formula.

It hides a client all of whose s averages move by g steps at once: g = ``STEPS`` for Gaussian noise,
:func:`bit_steps` for shuffled bits. Proofs: docs/proofs/linear.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from accounting.budget.calibrate import calibrate
from accounting.errors import NotDerived
from accounting.protocols.box import BinomialBox
from accounting.protocols.paper_parameters import lzj_vector
from accounting.theorems.real_gaussian import real_gaussian_ratio
from bandits.papers.lzj import lzj_classical_gaussian
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Sensitivity
from dpcore.protocols.shuffled_bits import VectorShuffle

__all__ = ["STEPS", "bit_steps", "least_gaussian", "least_shuffle", "moves", "paper_gaussian"]
__all__ += ["paper_shuffle"]

STEPS: Final = 1 << 6
r"""The g of Gaussian noise. Rounding adds at most 1/(4 n) of a squared step to an average: with 64
steps and B = 2 a tenth of sigma^2 = 0.01. More steps would make certificates slow to check.
"""

_SHUFFLED: Final = (1 << 6, 1 << 5, 1 << 4)
_MOST_BITS: Final = 1 << 21
_MORE: Final = tuple(Fraction(n, 1000) for n in (1001, 1005, 1020, 1100, 1300, 2000, 4000, 16000))
_FEW: Final = 1 << 18


def moves(s: int) -> Sensitivity:
    r"""How far a client moves s sums: each by ``STEPS``."""
    return Sensitivity(STEPS) if s == 1 else Sensitivity.box((STEPS,) * s)


@lru_cache(maxsize=1 << 12)
def least_gaussian(epsilon: Fraction, delta: Fraction, s: int) -> DiscreteGaussian:
    r"""The least discrete Gaussian noise that certainly gives (epsilon, delta)."""
    found = calibrate(
        noise="discrete-gaussian", epsilon=epsilon, delta=delta, sensitivity=moves(s)
    ).noise
    if not isinstance(found, DiscreteGaussian):
        raise NotDerived("discrete Gaussian noise", f"the calibration gave {found!r}")
    return found


@lru_cache(maxsize=1 << 12)
def paper_gaussian(epsilon: Fraction, delta: Fraction, s: int) -> DiscreteGaussian:
    r"""That of LZJ eq. 5, whose formula keeps (epsilon, delta) for epsilon <= 1 only."""
    ratio = Fraction(lzj_classical_gaussian(epsilon, delta).upper)
    return DiscreteGaussian(sigma_squared=math.ceil(ratio**2 * s * STEPS**2))


@lru_cache(maxsize=1 << 12)
def least_shuffle(epsilon: Fraction, delta: Fraction, n: int, s: int) -> VectorShuffle:
    r"""Fair bits of n clients, about the fewest that are certified to give (epsilon, delta)."""
    return VectorShuffle(
        users=n,
        noise_bits=-(-_enough(epsilon, delta, s) // n),
        probability="1/2",
        precision=bit_steps(epsilon, delta, s),
        coordinates=s,
    )


@lru_cache(maxsize=1 << 12)
def paper_shuffle(epsilon: Fraction, delta: Fraction, n: int, s: int) -> VectorShuffle:
    r"""The bits of LZJ Algorithm 2, checked to keep (epsilon, delta)."""
    found = lzj_vector(n, s, epsilon, delta)
    protocol = VectorShuffle(
        users=n,
        noise_bits=found.bits,
        probability=found.rounded_up,
        precision=found.precision,
        coordinates=s,
    )
    _check_kept(epsilon, delta, protocol)
    return protocol


@lru_cache(maxsize=1 << 10)
def _enough(epsilon: Fraction, delta: Fraction, s: int) -> int:
    # Fair bits that keep the target: a tenth of a percent more than Gaussian noise would need, or
    # more where that is not certified to do. More bits are noise on top, so more never harms.
    g = bit_steps(epsilon, delta, s)
    real = _as_gaussian(epsilon, delta, s) * g * g
    for more in _MORE:
        box = BinomialBox(trials=math.ceil(real * more), bounds=(g,) * s)
        if box.meets(epsilon, delta):
            return box.trials
    reason = "take a larger delta or a smaller epsilon"
    raise NotDerived(f"shuffled bits for ({epsilon}, {delta})", reason)


@lru_cache(maxsize=1 << 10)
def _as_gaussian(epsilon: Fraction, delta: Fraction, s: int) -> Fraction:
    # The fair bits for one squared step that have the variance of real Gaussian noise.
    return 4 * Fraction(real_gaussian_ratio(epsilon, delta).upper) ** 2 * s


def bit_steps(epsilon: Fraction, delta: Fraction, s: int) -> int:
    r"""g for shuffled bits: fewer steps where the bits for more would be too many to certify."""
    bits = _as_gaussian(epsilon, delta, s)
    return next((g for g in _SHUFFLED if bits * g * g <= _MOST_BITS), _SHUFFLED[-1])


def _check_kept(epsilon: Fraction, delta: Fraction, protocol: VectorShuffle) -> None:
    # The paper's bits keep the target many times over: some of them already do, by basic
    # composition of the coordinates.
    g, s = protocol.precision, protocol.coordinates
    every = protocol.planned_noise.trials
    for some in dict.fromkeys((min(every, _FEW), every)):
        one = BinomialBox(trials=some, bounds=(g,), probability=protocol.probability)
        if s * Fraction(one.delta(epsilon / s).upper) <= delta:
            return
    wanted = f"that the bits of LZJ Algorithm 2 keep ({epsilon}, {delta})"
    raise NotDerived(wanted, "calibrate exactly")
