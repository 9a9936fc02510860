r"""Releases from samples, by the scheme: what the tests ask is not in the type of a guarantee."""

from __future__ import annotations

from typing import Any

from accounting.descriptions.sampling_schemes import (
    Allocation,
    FixedSize,
    Poisson,
    Shifts,
    TruncatedPoisson,
)
from accounting.release.derive_guarantee import sampled


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
