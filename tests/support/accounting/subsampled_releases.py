r"""Build subsampled releases by scheme, as `Any`: tests use attributes that `Guarantee` lacks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from accounting.derive_guarantee import sampled
from accounting.descriptions.real_noise import Gaussian, Laplace
from accounting.descriptions.sampling_schemes import (
    Allocation,
    FixedSize,
    Poisson,
    Shifts,
    TruncatedPoisson,
)
from accounting.pairs.enclose_curve import narrowed
from accounting.pld.real_cells import RealPair
from accounting.privacy_curves.real_noise_curve import RealCurve
from dpcore.mechanism import Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import ball

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def gaussian(
    sigma: Any, sensitivity: Sensitivity | int = 1, scope: Scope = ADD_REMOVE
) -> RealCurve:
    return RealCurve(noise=Gaussian(sigma=sigma), sensitivity=sensitivity, scope=scope)


def laplace(scale: Any, sensitivity: Any = 1, scope: Scope = ADD_REMOVE) -> RealCurve:
    return RealCurve(noise=Laplace(scale=scale), sensitivity=sensitivity, scope=scope)


def poisson(curve: Any, rate: Any, relation: Any = None, members: Any = 1) -> Any:
    return sampled(curve, Poisson(rate=rate), relation, members)


def replaced(curve: Any, rate: Any) -> Any:
    return poisson(curve, rate, "replace")


def fixed(curve: Any, sample: int, population: int) -> Any:
    return sampled(curve, FixedSize(sample=sample, population=population))


def shifted(curve: Any, weights: Any) -> Any:
    return sampled(curve, Shifts(weights=weights))


def truncated(curve: Any, rate: Any, examples: Any, most: Any, relation: Any = None) -> Any:
    return sampled(curve, TruncatedPoisson(rate=rate, examples=examples, most=most), relation)


def allocated(curve: Any, rounds: Any, picks: Any = 1) -> Any:
    return sampled(curve, Allocation(rounds=rounds, picks=picks))


def of_pair(pair: RealPair, epsilon: str) -> float:
    """Return delta of one round of a pair, rounded up."""
    return narrowed(lambda: pair.curve(ball(Fraction(epsilon))), 64).upper_float
