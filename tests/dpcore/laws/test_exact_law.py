r"""The reference samplers, unrolled layer by layer, have exactly the laws they claim.

Each layer is unrolled by itself and then stands in the next as one fork with its exact law. A
sandwich of rationals that misses the enclosed mass is a bug: no false alarm is possible. Every
layer rejects its classic mutants, each one edit of the code that ships.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import pytest

from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, Noise
from dpcore.numbers.enclosure import ball, narrow
from dpcore.sampling import coins as exact
from dpcore.sampling.rng import Rng
from tests.effort import by_day
from tests.support.dpcore.layers import (
    ProposalProven,
    bernoulli_exp_proven,
    bernoulli_proven,
    geometric_exp_proven,
    geometric_mass,
)
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.exact_law import Forking, Law, alike, exp_neg, unroll


def exactly(*texts: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, texts))


TINY = Fraction(1, 10**30)
EXPONENTS = exactly("0", "1/1000000", "1/3", "1/2", "0.7", "999/1000", "1")
GEOMETRIC = exactly("1", "2", "7/3", "1/2", "1/3", "3/5", "1/10")
SCALES = exactly("1/3", "1/2", "1", "5/3", "4")
VARIANCES = exactly("1/100", "1/4", "1/2", "1", "9/4", "10", "37/3")

Sampler = Callable[[Forking], Hashable]


# -- Rng.below ---------------------------------------------------------------------------------


def below(bound: int, code: Callable[[Rng, int], int] = Rng.below) -> Sampler:
    return lambda rng: code(rng, bound)


def below_refuted(bound: int, code: Callable[[Rng, int], int] = Rng.below) -> list[Any]:
    law = unroll(below(bound, code), kind="bits", rounds=1, forks_below=False)
    assert law.leftover == 0
    return law.refuted(
        lambda k: Enclosure.exactly(Fraction(1, bound) if 0 <= k < bound else 0), range(bound)
    )


@pytest.mark.parametrize("bound", [*range(1, 34), 63, 64, 65, 1000, 1023, 1024, 1025])
def test_below_is_uniform(bound: int) -> None:
    assert below_refuted(bound) == []


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 7, 8, 9, 33])
def test_below_starts_afresh_after_a_rejection(bound: int) -> None:
    assert alike(below(bound), kind="bits")


BELOW_MUTANTS = {
    "modulo without rejection": (
        "if candidate < bound:\n            return candidate",
        "return candidate % bound",
    ),
    "accepts the bound itself": ("candidate < bound", "candidate <= bound"),
    "one bit too few": ("(bound - 1).bit_length()", "(bound - 1).bit_length() - 1"),
}


@pytest.mark.parametrize("name", BELOW_MUTANTS)
def test_below_mutant_is_caught(name: str) -> None:
    mutant = mutated(Rng.below, *BELOW_MUTANTS[name])
    law = unroll(below(5, mutant), kind="bits", rounds=1, forks_below=False)
    fifth = Enclosure.exactly(Fraction(1, 5))
    assert law.refuted(lambda k: fifth if 0 <= k < 5 else Enclosure.exactly(0), range(5))


# -- bernoulli ---------------------------------------------------------------------------------


def bernoulli_refuted(p: Fraction, code: Callable[[Rng, Fraction], bool]) -> list[Any]:
    law = unroll(lambda rng: code(rng, p))
    assert law.leftover == 0
    return law.refuted(lambda hit: Enclosure.exactly(p if hit else 1 - p), (True, False))


PROBABILITIES = exactly("0", "1", "1/2", "1/3", "6/7", "1/1000", "0.123456789")


@pytest.mark.parametrize("p", PROBABILITIES, ids=str)
def test_bernoulli_is_exact(p: Fraction) -> None:
    assert bernoulli_refuted(p, exact.bernoulli) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("off by one", "< probability.numerator", "<= probability.numerator"),
        ("float threshold", "rng.below(probability.denominator) < probability.numerator",
         "rng.below(1 << 53) < float(probability) * 2**53"),
    ],
)  # fmt: skip
def test_bernoulli_mutant_is_caught(name: str, old: str, new: str) -> None:
    assert bernoulli_refuted(Fraction(1, 3), mutated(exact.bernoulli, old, new))


# -- bernoulli_exp -----------------------------------------------------------------------------


def exp_refuted(law: Law, exponent: Fraction) -> list[Any]:
    hit = exp_neg(exponent, 300)
    miss = (
        narrow(lambda: 1 - (-ball(exponent)).exp(), 300) if exponent > 0 else Enclosure.exactly(0)
    )
    return law.refuted(lambda value: hit if value else miss, (True, False))


def unit_law(exponent: Fraction, code: Callable[..., Any] = exact._bernoulli_exp_unit) -> Law:
    flipped = rewired(code, bernoulli=bernoulli_proven)
    return unroll(lambda rng: flipped(rng, exponent), open_mass=TINY)


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
def test_bernoulli_exp_up_to_one_is_exact(exponent: Fraction) -> None:
    law = unit_law(exponent)
    assert law.leftover <= TINY
    assert exp_refuted(law, exponent) == []


@pytest.mark.parametrize("exponent", exactly("0", "1/3", "1", "4/3", "2"), ids=str)
def test_bernoulli_exp_is_exact_down_to_the_integers_it_asks_for(exponent: Fraction) -> None:
    # No layer is stubbed here but below, so the chain of coins is whole.
    law = unroll(lambda rng: exact.bernoulli_exp(rng, exponent), runs=4000)
    assert law.leftover < Fraction(1, 100)
    assert exp_refuted(law, exponent) == []


@pytest.mark.parametrize("exponent", [*EXPONENTS, *exactly("1.5", "2", "3.7", "20")], ids=str)
def test_bernoulli_exp_is_exact_for_every_exponent(exponent: Fraction) -> None:
    code = rewired(exact.bernoulli_exp, _bernoulli_exp_unit=bernoulli_exp_proven)
    law = unroll(lambda rng: code(rng, exponent), open_mass=Fraction(0))
    assert law.leftover <= TINY
    assert exp_refuted(law, exponent) == []


UNIT_MUTANTS = {
    "trial starts at 0": ("trial = 1\n", "trial = 0\n"),
    "trial starts at 2": ("trial = 1\n", "trial = 2\n"),
    "parity flipped": ("% 2 == 1", "% 2 == 0"),
    "counts by two": ("trial += 1", "trial += 2"),
    "x for x/k": ("exponent / trial", "exponent"),
    "x/(k+1) for x/k": ("exponent / trial", "exponent / (trial + 1)"),
    "series cut after three terms": (
        "while bernoulli(rng, exponent / trial):",
        "while trial < 4 and bernoulli(rng, exponent / trial):",
    ),
    "float threshold": (
        "trial = 1\n",
        "return rng.below(1 << 53) < __import__('math').exp(-exponent) * 2**53\n    trial = 1\n",
    ),
}


@pytest.mark.parametrize("name", UNIT_MUTANTS)
def test_bernoulli_exp_mutant_is_caught(name: str) -> None:
    exponent = Fraction(1, 3)
    mutant = mutated(exact._bernoulli_exp_unit, *UNIT_MUTANTS[name])
    if name == "trial starts at 0":
        with pytest.raises(ZeroDivisionError):
            unit_law(exponent, mutant)
        return
    assert exp_refuted(unit_law(exponent, mutant), exponent)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rest dropped", "return _bernoulli_exp_unit(rng, exponent)", "return True"),
        ("a factor forgotten", "exponent -= 1", "exponent -= 2"),
        ("exponent cut at 2", "while exponent > 1:", "while 1 < exponent <= 2:"),
    ],
)
def test_bernoulli_exp_of_a_large_exponent_mutant_is_caught(name: str, old: str, new: str) -> None:
    def unit(rng: Forking, exponent: Fraction) -> bool:
        return bernoulli_exp_proven(rng, min(max(exponent, Fraction(0)), Fraction(1)))

    mutant = mutated(exact.bernoulli_exp, old, new, _bernoulli_exp_unit=unit)
    exponent = Fraction(27, 10)
    assert exp_refuted(unroll(lambda rng: mutant(rng, exponent)), exponent)


# -- geometric_exp -----------------------------------------------------------------------------


def geometric(exponent: Fraction, code: Callable[..., Any]) -> Sampler:
    return lambda rng: code(rng, exponent)


def geometric_refuted(exponent: Fraction, code: Callable[..., Any]) -> list[Any]:
    law = unroll(geometric(exponent, code), kind="below", rounds=1, open_mass=TINY / 10)
    assert law.leftover <= TINY
    return law.refuted(lambda k: geometric_mass(exponent, k), range(40))


@by_day(1)
@pytest.mark.parametrize("exponent", GEOMETRIC, ids=str)
def test_geometric_exp_is_exact(exponent: Fraction) -> None:
    code = rewired(exact.geometric_exp, bernoulli_exp=bernoulli_exp_proven)
    assert geometric_refuted(exponent, code) == []


@pytest.mark.parametrize("exponent", exactly("2", "1/2", "7/3"), ids=str)
def test_geometric_exp_is_exact_without_rounds(exponent: Fraction) -> None:
    # Rounds are assumed alike above; here every path is followed through its rejections.
    code = rewired(exact.geometric_exp, bernoulli_exp=bernoulli_exp_proven)
    law = unroll(geometric(exponent, code), open_mass=Fraction(1, 1000))
    assert law.leftover < Fraction(1, 999)
    assert law.refuted(lambda k: geometric_mass(exponent, k), range(40)) == []


GEOMETRIC_MUTANTS = {
    "scale for 1/scale": (
        "exponent.numerator, exponent.denominator",
        "exponent.denominator, exponent.numerator",
    ),
    "fraction never rejected": ("            break", "            pass\n        break"),
    "whole starts at 1": ("whole = 0", "whole = 1"),
    "truncated tail": (
        "while bernoulli_exp(rng, Fraction(1)):",
        "while whole < 25 and bernoulli_exp(rng, Fraction(1)):",
    ),
    "rounds up": ("(fraction + unit * whole) // step", "-(-(fraction + unit * whole) // step)"),
    "fraction forgotten": ("(fraction + unit * whole)", "(unit * whole)"),
    "float coin": (
        "while bernoulli_exp(rng, Fraction(1)):",
        "while rng.bits(53) < __import__('math').exp(-1) * 2**53:",
    ),
}


@by_day(2)
@pytest.mark.parametrize("name", GEOMETRIC_MUTANTS)
def test_geometric_exp_mutant_is_caught(name: str) -> None:
    old, new = GEOMETRIC_MUTANTS[name]
    mutant = mutated(exact.geometric_exp, old, new, bernoulli_exp=bernoulli_exp_proven)
    assert geometric_refuted(Fraction(3, 2), mutant)


# -- DiscreteLaplace.sample_reference ------------------------------------------------------------


def laplace(scale: Fraction, code: Callable[..., Any]) -> Sampler:
    return lambda rng: code(DiscreteLaplace(scale=scale), rng)


def laplace_refuted(scale: Fraction, code: Callable[..., Any]) -> list[Any]:
    law = unroll(laplace(scale, code), kind="geometric", rounds=1, open_mass=Fraction(0))
    assert law.leftover < TINY
    return noise_refuted(law, DiscreteLaplace(scale=scale))


def noise_refuted(law: Law, noise: Noise) -> list[Any]:
    return law.refuted(noise.enclose_pmf, range(-60, 61))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_discrete_laplace_reference_is_exact(scale: Fraction) -> None:
    code = rewired(DiscreteLaplace.sample_reference, geometric_exp=geometric_exp_proven)
    assert laplace_refuted(scale, code) == []
    assert alike(laplace(scale, code), kind="geometric")


@pytest.mark.parametrize("scale", exactly("1/2", "2"), ids=str)
def test_discrete_laplace_reference_is_exact_without_rounds(scale: Fraction) -> None:
    code = rewired(DiscreteLaplace.sample_reference, geometric_exp=geometric_exp_proven)
    law = unroll(laplace(scale, code), open_mass=Fraction(1, 10**9))
    assert law.leftover <= Fraction(1, 10**8)
    assert noise_refuted(law, DiscreteLaplace(scale=scale)) == []


@by_day(1)
@pytest.mark.parametrize("scale", exactly("1/2", "1", "3/2"), ids=str)
def test_discrete_laplace_reference_is_exact_with_no_layer_stubbed(scale: Fraction) -> None:
    noise = DiscreteLaplace(scale=scale)
    law = unroll(noise.sample_reference, runs=4000)
    assert law.leftover < Fraction(1, 2)
    assert noise_refuted(law, noise) == []


LAPLACE_MUTANTS = {
    "negative zero not rejected": ("not (negative and magnitude == 0)", "True"),
    "zero rejected under both signs": ("negative and magnitude == 0", "magnitude == 0"),
    "scale for 1/scale": ("1 / self.scale", "self.scale"),
    "scale a thousandth of a millionth off": (
        "1 / self.scale",
        "1 / (self.scale + Fraction(1, 10**9))",
    ),
    "no sign": ("-magnitude if negative else magnitude", "magnitude"),
    "truncated tail": (
        "magnitude = geometric_exp(rng, 1 / self.scale)",
        "magnitude = min(geometric_exp(rng, 1 / self.scale), 100)",
    ),
}


@pytest.mark.parametrize("name", LAPLACE_MUTANTS)
def test_discrete_laplace_mutant_is_caught(name: str) -> None:
    scale = Fraction(3, 2)
    old, new = LAPLACE_MUTANTS[name]
    mutant = mutated(DiscreteLaplace.sample_reference, old, new, geometric_exp=geometric_exp_proven)
    assert laplace_refuted(scale, mutant)


# -- DiscreteGaussian.sample_reference -----------------------------------------------------------


class ShortProposal(ProposalProven):
    r"""Cut sooner, so that two rounds can be unrolled whole."""

    far = 3


STUBS: dict[str, Any] = {"DiscreteLaplace": ProposalProven, "bernoulli_exp": bernoulli_exp_proven}


def gaussian(variance: Fraction, code: Callable[..., Any]) -> Sampler:
    return lambda rng: code(DiscreteGaussian(sigma_squared=variance), rng)


def gaussian_refuted(variance: Fraction, code: Callable[..., Any]) -> list[Any]:
    law = unroll(gaussian(variance, code), kind="proposal", rounds=1, open_mass=Fraction(0))
    assert law.leftover < TINY
    return noise_refuted(law, DiscreteGaussian(sigma_squared=variance))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_discrete_gaussian_reference_is_exact(variance: Fraction) -> None:
    assert gaussian_refuted(variance, rewired(DiscreteGaussian.sample_reference, **STUBS)) == []


@pytest.mark.parametrize("variance", exactly("1/4", "1", "5"), ids=str)
def test_discrete_gaussian_starts_afresh_after_a_rejection(variance: Fraction) -> None:
    stubs = {**STUBS, "DiscreteLaplace": ShortProposal}
    assert alike(
        gaussian(variance, rewired(DiscreteGaussian.sample_reference, **stubs)), kind="proposal"
    )


def test_a_sampler_that_remembers_a_rejection_is_not_alike() -> None:
    def remembers(rng: Forking) -> int:
        bound = 4
        while True:
            value: int = rng.choose([Fraction(1, bound)] * bound, "proposal")
            if value != 1:
                return value
            bound = 5

    assert not alike(remembers, kind="proposal")


GAUSSIAN_MUTANTS = {
    "sigma for sigma squared": (
        "(2 * self.sigma_squared)",
        "(2 * math.isqrt(math.floor(self.sigma_squared)))",
    ),
    "factor two lost": ("(2 * self.sigma_squared)", "self.sigma_squared"),
    "centre forgotten": ("abs(candidate) - self.sigma_squared / scale", "Fraction(abs(candidate))"),
    "sign of the gap": (
        "abs(candidate) - self.sigma_squared",
        "abs(candidate) + self.sigma_squared",
    ),
    "abs forgotten": ("abs(candidate) - self.sigma_squared", "candidate - self.sigma_squared"),
    "gap not squared": ("gap * gap", "abs(gap)"),
    "never rejected": ("if bernoulli_exp(rng, gap * gap / (2 * self.sigma_squared)):", "if True:"),
    "proposal too narrow": ("math.isqrt(math.floor(self.sigma_squared)) + 1", "1"),
    "float exponent": ("gap * gap /", "Fraction(float(gap) ** 2) /"),
}


@by_day(4)
@pytest.mark.parametrize("name", GAUSSIAN_MUTANTS)
def test_discrete_gaussian_mutant_is_caught(name: str) -> None:
    old, new = GAUSSIAN_MUTANTS[name]
    stubs = {**STUBS, "Fraction": Fraction}
    mutant = mutated(DiscreteGaussian.sample_reference, old, new, **stubs)
    if name == "proposal too narrow":
        # The law is right with any proposal: what is lost is speed, and the test must not cry.
        assert gaussian_refuted(Fraction(1, 3), mutant) == []
        return
    assert gaussian_refuted(Fraction(28, 3), mutant)
