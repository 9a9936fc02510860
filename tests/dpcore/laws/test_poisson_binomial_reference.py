r"""The reference samplers of Poisson and binomial laws, unrolled layer by layer.

A sandwich of rationals that misses the enclosed mass is a bug, and every layer rejects its classic
mutants, each one edit of the code that ships.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from dpcore import Enclosure, Noise, SeededRng
from dpcore.laws import poisson as poisson_module
from dpcore.laws.binomial import Binomial
from dpcore.laws.poisson import Poisson
from tests.effort import by_day
from tests.support.dpcore.layers import bernoulli_proven, lower_end
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.exact_law import Forking, Law, unroll

UNIT = Poisson(mean=1)


# -- the unit Poisson of Duchon and Duvignau -------------------------------------------------------


def unit_law(code: Callable[..., Any] = poisson_module._unit_poisson) -> Law:
    return unroll(code, open_mass=Fraction(1, 10**9), runs=6000)


def test_a_unit_poisson_is_exact() -> None:
    law = unit_law()
    assert law.leftover < Fraction(1, 2000)
    assert len(law.lower) > 6
    assert law.refuted(UNIT.enclose_pmf, range(15)) == []


UNIT_MUTANTS = {
    "starts at 0": ("size, guard, count = 1, 0, 1", "size, guard, count = 1, 0, 0"),
    "one choice too few": ("rng.below(size + 1) + 1", "rng.below(size) + 1"),
    "guard moves to size": ("guard = size + 1", "guard = size"),
    "guard never moves": ("            guard = size + 1\n", ""),
    "compares with >=": ("drawn > guard", "drawn >= guard"),
    "size stands still": ("        size += 1", "        size += 0"),
    "cut at 5": ("return count", "return min(count, 5)"),
}


@by_day(2)
@pytest.mark.parametrize("name", UNIT_MUTANTS)
def test_a_mutant_of_the_unit_poisson_is_caught(name: str) -> None:
    mutant = mutated(poisson_module._unit_poisson, *UNIT_MUTANTS[name])
    law = unit_law(mutant)
    assert law.leftover > Fraction(1, 2) or law.refuted(UNIT.enclose_pmf, range(15))


# -- the reference samplers ------------------------------------------------------------------------

UNIT_WEIGHTS = [lower_end(UNIT.enclose_pmf(k, 160)) for k in range(40)]


def unit_proven(rng: Forking) -> int:
    return rng.choose(UNIT_WEIGHTS, "unit")


def poisson_refuted(mean: Fraction, code: Callable[..., Any]) -> list[Any]:
    noise = Poisson(mean=mean)
    law = unroll(lambda rng: code(noise, rng), open_mass=Fraction(1, 10**7))
    assert law.leftover < Fraction(1, 10**4)
    return law.refuted(noise.enclose_pmf, range(20))


MEANS = [Fraction(m) for m in ("1/1000", "1/3", "1", "3/2", "2", "8/3")]
STUBS: dict[str, Any] = {"_unit_poisson": unit_proven, "bernoulli": bernoulli_proven}


@by_day(1)
@pytest.mark.parametrize("mean", MEANS, ids=str)
def test_the_poisson_reference_is_exact(mean: Fraction) -> None:
    assert poisson_refuted(mean, rewired(Poisson.sample_reference, **STUBS)) == []


def test_the_poisson_reference_is_exact_with_no_layer_stubbed() -> None:
    noise = Poisson(mean="1/2")
    law = unroll(noise.sample_reference, runs=4000)
    assert law.leftover < Fraction(1, 10)
    assert law.refuted(noise.enclose_pmf, range(15)) == []


POISSON_MUTANTS = {
    "fraction forgotten": ("if kept:", "if False:"),
    "thinned by the rest": ("bernoulli(rng, kept)", "bernoulli(rng, 1 - kept)"),
    "one unit too many": ("range(whole))\n", "range(whole + 1))\n"),
    "thinned once": ("sum(bernoulli(rng, kept) for _ in range(_unit_poisson(rng)))",
                     "bernoulli(rng, kept) * _unit_poisson(rng)"),
    "rounds the mean": ("math.floor(self.mean)", "round(self.mean + Fraction(1, 10))"),
}  # fmt: skip


@by_day(2)
@pytest.mark.parametrize("name", POISSON_MUTANTS)
def test_a_mutant_of_the_poisson_reference_is_caught(name: str) -> None:
    mutant = mutated(Poisson.sample_reference, *POISSON_MUTANTS[name], **STUBS)
    mean = Fraction(5, 3)
    if name == "rounds the mean":  # 2 units and a coin of probability -1/3, which is refused
        with pytest.raises((AssertionError, ValueError)):
            assert not poisson_refuted(mean, mutant)
        return
    assert poisson_refuted(mean, mutant)


def binomial_refuted(trials: int, p: Fraction, code: Callable[..., Any]) -> list[Any]:
    noise = Binomial(trials=trials, probability=p)
    law = unroll(lambda rng: code(noise, rng), open_mass=Fraction(0))
    assert law.leftover == 0

    def mass(k: int) -> Enclosure:
        inside = 0 <= k <= trials
        return Enclosure.exactly(
            math.comb(trials, k) * p**k * (1 - p) ** (trials - k) if inside else 0
        )

    return law.refuted(mass, range(-1, trials + 2))


COINS = [(1, "1/2"), (1, "1/3"), (5, "1/2"), (7, "2/3"), (9, "1/1000")]


@pytest.mark.parametrize(("trials", "p"), COINS)
def test_the_binomial_reference_is_exact(trials: int, p: str) -> None:
    code = rewired(Binomial.sample_reference, bernoulli=bernoulli_proven)
    assert binomial_refuted(trials, Fraction(p), code) == []
    assert binomial_refuted(min(trials, 5), Fraction(1, 3), Binomial.sample_reference) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("one coin more", "range(self.trials)", "range(self.trials + 1)"),
        ("one coin fewer", "range(self.trials)", "range(self.trials - 1)"),
        (
            "tails for heads",
            "bernoulli(rng, self.probability)",
            "bernoulli(rng, 1 - self.probability)",
        ),
    ],
)
def test_a_mutant_of_the_binomial_reference_is_caught(name: str, old: str, new: str) -> None:
    mutant = mutated(Binomial.sample_reference, old, new, bernoulli=bernoulli_proven)
    assert binomial_refuted(4, Fraction(1, 3), mutant)


LARGE: list[Noise] = [Poisson(mean=2**80), Binomial(trials=2**80, probability="1/3")]


@pytest.mark.parametrize("noise", LARGE, ids=repr)
def test_huge_parameters_draw_one_by_one(noise: Noise) -> None:
    drawn = noise.sample_reference(SeededRng(1))
    away = Fraction(drawn) - Fraction(str(noise.mean))
    assert away**2 < 60 * Fraction(str(noise.variance))
