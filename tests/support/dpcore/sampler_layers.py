r"""Layers of the reference samplers: functions under test, and stubs for tested layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import Any

from flint import arb

from dpcore import DiscreteGaussian, DiscreteLaplace, Enclosure, Noise
from dpcore.laws import polya
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya
from dpcore.numbers.enclosure import ball, narrow
from tests.support.enumerate_random_choices import Forking, Law, coarser, coin, exp_neg, unroll

Mass = Callable[[Any], Enclosure]
NONE = Fraction(0)
TINY = Fraction(1, 10**30)


def exactly(*texts: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, texts))


def bernoulli_proven(rng: Forking, probability: Fraction) -> bool:
    return coin(rng, Enclosure.exactly(probability))


def bernoulli_exp_proven(rng: Forking, exponent: Fraction) -> bool:
    return coin(rng, exp_neg(exponent))


def geometric_mass(exponent: Fraction, k: int) -> Enclosure:
    def mass() -> Any:
        ratio = (-ball(exponent)).exp()
        return (1 - ratio) * ratio**k

    return narrow(mass, 160)


def lower_end(mass: Enclosure) -> Fraction:
    return coarser(mass, 160).lower


@cache
def geometric_weights(exponent: Fraction) -> list[Fraction]:
    far = math.ceil(80 / exponent)
    return [lower_end(geometric_mass(exponent, k)) for k in range(far)]


def geometric_exp_proven(rng: Forking, exponent: Fraction) -> int:
    return rng.choose(geometric_weights(exponent), "geometric")


def side_proven(rng: Forking, cdf: Callable[[int], arb], guess: int) -> int:
    r"""An inversion of a law on -1, 0, 1 as one fork."""
    assert guess == 0

    def mass(k: int) -> arb:
        return cdf(k) - cdf(k - 1)

    masses = [narrow(partial(mass, k), 160) for k in (-1, 0, 1)]
    return rng.choose([lower_end(each) for each in masses], "side") - 1


@cache
def weights(noise: Noise, first: int, last: int) -> list[Fraction]:
    return [lower_end(noise.enclose_pmf(k, 160)) for k in range(first, last + 1)]


def decay_proven(rng: Forking, exponent: Fraction) -> bool:
    return bernoulli_exp_proven(rng, min(max(exponent, NONE), Fraction(1)))


def law_proven(kind: Callable[..., Noise], first: int, last: int, *, scaled: bool = False) -> Any:
    r"""Return a stand-in for a law: one fork, cut where little mass remains.

    The ends are multiples of the scale if ``scaled``.
    """

    class Proven:
        def __init__(self, **parameters: Any) -> None:
            unit = parameters["scale"] if scaled else 1
            self._law, self._first, self._last = kind(**parameters), first * unit, last * unit

        def sample_reference(self, rng: Forking) -> int:
            every = weights(self._law, self._first, self._last)
            return rng.choose(every, kind.__name__) + self._first

    return Proven


ProposalProven = law_proven(DiscreteLaplace, -72, 72, scaled=True)  # the rest is below 10^-30
ShortProposal = law_proven(DiscreteLaplace, -3, 3, scaled=True)  # for two rounds
GaussianProven = law_proven(DiscreteGaussian, -12, 12)  # below 10^-25
PoissonProven = law_proven(Poisson, 0, 39)  # below 10^-30
FewArrivals = law_proven(Poisson, 0, 11)  # below 10^-3


def unit_proven(rng: Forking) -> Any:
    return PoissonProven(mean=1).sample_reference(rng)


def urn_proven(rng: Forking, shape: Fraction, scale: Fraction) -> int:
    return rng.choose(weights(Polya(shape=shape, scale=scale), 0, 59), "urn")


def two_over_e() -> Enclosure:
    return narrow(lambda: 2 * (-arb(1)).exp(), 160)


def two_over_e_proven(rng: Forking) -> bool:
    return coin(rng, two_over_e())


def rate(scale: Fraction, size: int) -> Enclosure:
    r"""e^(-m/s)/m, the rate of jumps of one size at shape 1."""
    return narrow(lambda: (-ball(Fraction(size) / scale)).exp() / size, 160)


@cache
def candidates(scale: Fraction, cell: int) -> list[Fraction]:
    r"""Return the law of one candidate of a cell, from the rates alone: 0 where it is rejected."""
    last = polya.octaves(scale)
    every = [NONE] * 30
    if cell > last:
        return every
    sizes = range(1 << cell, 1 << (cell + 1)) if cell < last else range(1 << last, 30)
    for m in sizes:
        every[m] = coarser(rate(scale, m), 96).lower
    kept = sum(coarser(rate(scale, m), 96).upper for m in sizes)
    every[0] = max(1 - kept - Fraction(1, 10**8), NONE)
    return every


def jump_proven(rng: Forking, scale: Fraction, cell: int) -> int:
    return rng.choose(candidates(scale, cell), "jump")


def even(bound: int) -> Mass:
    return lambda k: Enclosure.exactly(Fraction(1, bound) if 0 <= k < bound else 0)


def chance_of(p: Fraction) -> Mass:
    return lambda hit: Enclosure.exactly(p if hit else 1 - p)


def decay(exponent: Fraction) -> Mass:
    hit = exp_neg(exponent, 300)
    missed = narrow(lambda: 1 - (-ball(exponent)).exp(), 300) if exponent else Enclosure.exactly(0)
    return lambda value: hit if value else missed


def geometric(exponent: Fraction) -> Mass:
    return lambda k: geometric_mass(exponent, k)


def two_over_e_mass(_: Any) -> Mass:
    chance = two_over_e()
    missed = Enclosure(1 - chance.upper, 1 - chance.lower)
    return lambda hit: chance if hit else missed


def of_noise(noise: Noise) -> Mass:
    return noise.enclose_pmf


def both(_: Any) -> tuple[bool, bool]:
    return (True, False)


def near(_: Any) -> range:
    return range(-60, 61)


def polyas(*pairs: tuple[str, str]) -> tuple[Polya, ...]:
    return tuple(Polya(shape=shape, scale=scale) for shape, scale in pairs)


def jump_mass(scale: Fraction) -> Mass:
    r"""(t+1) P(one candidate is kept with size m) is e^(-m/s)/m: candidates arrive at (t+1) r."""
    cells = polya.octaves(scale) + 1

    def mass(size: int) -> Enclosure:
        if size == 0:
            return Enclosure(NONE, Fraction(1))
        held = rate(scale, size)
        return Enclosure(held.lower / cells, held.upper / cells)

    return mass


def coin_mass(noise: Binomial) -> Mass:
    n, p = noise.trials, noise.probability

    def mass(k: int) -> Enclosure:
        inside = 0 <= k <= n
        return Enclosure.exactly(math.comb(n, k) * p**k * (1 - p) ** (n - k) if inside else 0)

    return mass


def around_trials(noise: Binomial) -> range:
    return range(-1, noise.trials + 2)


def call(code: Callable[..., Any], rng: Forking, case: Any) -> Any:
    r"""A coin: code(rng, parameter)."""
    return code(rng, case)


def draw(code: Callable[..., Any], rng: Forking, case: Noise) -> Any:
    r"""A reference sampler: code(noise, rng)."""
    return code(case, rng)


def part(code: Callable[..., Any], rng: Forking, case: Polya) -> Any:
    r"""A part of a Polya draw: code(rng, shape, scale)."""
    return code(rng, case.shape, case.scale)


def candidate(code: Callable[..., Any], rng: Forking, scale: Fraction) -> Any:
    return code(rng, scale, rng.below(polya.octaves(scale) + 1))


@dataclass(frozen=True, kw_only=True)
class Layer:
    r"""A function of the samplers, with the settings of its enumeration.

    ``how`` are the keywords of ``unroll``, which leaves at most ``leftover`` open; ``short`` are
    stubs that end sooner, for two rounds; ``broken`` is the case in which mutants are detected.
    """

    name: str
    code: Callable[..., Any]
    cases: tuple[Any, ...]
    run: Callable[[Callable[..., Any], Forking, Any], Any] = draw
    mass: Callable[[Any], Mass] = of_noise
    values: Callable[[Any], Iterable[Any]] = near
    stubs: Mapping[str, Any] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=lambda: {"open_mass": NONE})
    leftover: Fraction = TINY
    mutants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    broken: Any = None
    afresh: tuple[Any, ...] = ()
    short: Mapping[str, Any] = field(default_factory=dict)
    by_day: int = 2
    mutants_by_day: int = 2

    def law(self, code: Callable[..., Any], case: Any) -> Law:
        r"""Return the law that the code draws."""
        return unroll(lambda rng: self.run(code, rng, case), **self.how)
