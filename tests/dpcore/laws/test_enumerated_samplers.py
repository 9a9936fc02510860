r"""Tests of the reference samplers: enumerated by layers, they have exactly the stated laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpcore import SeededRng
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Poisson
from dpcore.noise import Noise
from tests.day_and_nightly import by_day
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.references import LAYERS
from tests.support.dpcore.sampler_layers import Layer
from tests.support.enumerate_random_choices import Forking, alike
from tests.support.laws import centre, reach

NIGHTLY: dict[bool, Any] = {True: pytest.mark.nightly, False: ()}
CASES = [
    pytest.param(layer, case, marks=NIGHTLY[place >= layer.by_day], id=f"{layer.name}: {case}")
    for layer in LAYERS
    for place, case in enumerate(layer.cases)
]
MUTANTS = [
    pytest.param(
        layer, name, marks=NIGHTLY[place >= layer.mutants_by_day], id=f"{layer.name}: {name}"
    )
    for layer in LAYERS
    for place, name in enumerate(layer.mutants)
]
AFRESH = [
    pytest.param(layer, case, id=f"{layer.name}: {case}")
    for layer in LAYERS
    for case in layer.afresh
]


@by_day(7)
@pytest.mark.parametrize(("layer", "case"), CASES)
def test_each_layer_has_its_exact_law(layer: Layer, case: Any) -> None:
    law = layer.law(rewired(layer.code, **layer.stubs), case)
    assert law.leftover <= layer.leftover
    assert law.refuted(layer.mass(case), layer.values(case)) == []


@by_day(7)
@pytest.mark.parametrize(("layer", "name"), MUTANTS)
def test_a_mutant_of_a_layer_is_detected(layer: Layer, name: str) -> None:
    mutant = mutated(layer.code, *layer.mutants[name], **layer.stubs)
    assert sees(layer, mutant)


def sees(layer: Layer, mutant: Any) -> bool:
    try:
        law = layer.law(mutant, layer.broken)
        if law.leftover > Fraction(1, 2):
            return True  # it does not terminate
        return bool(law.refuted(layer.mass(layer.broken), layer.values(layer.broken)))
    except (ArithmeticError, AssertionError, ValueError):
        return True  # it requests something that is not a choice


@pytest.mark.parametrize(("layer", "case"), AFRESH)
def test_a_rejection_starts_an_independent_round(layer: Layer, case: Any) -> None:
    code = rewired(layer.code, **{**layer.stubs, **layer.short})
    assert alike(lambda rng: layer.run(code, rng, case), kind=layer.how["kind"])


def test_a_sampler_that_remembers_a_rejection_is_detected() -> None:
    def remembers(rng: Forking) -> int:
        bound = 4
        while True:
            value: int = rng.choose([Fraction(1, bound)] * bound, "proposal")
            if value != 1:
                return value
            bound = 5

    assert not alike(remembers, kind="proposal")


@pytest.mark.parametrize(
    "noise",
    [Poisson(mean=2**80), DiscreteGaussianSum(count=1 << 20, sigma_squared="1/3")],
    ids=repr,
)
def test_huge_parameters_are_sampled_by_inversion(noise: Noise) -> None:
    # Beyond 4096 draws the reference sampler uses one uniform real instead of the draws.
    drawn = [noise.sample_reference(SeededRng(seed)) for seed in range(3)]
    assert len(set(drawn)) == 3
    assert max(abs(k - centre(noise)) for k in drawn) < 8 * reach(noise)
