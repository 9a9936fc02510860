r"""Output laws of the catalogue, derived independently: exact masses by mpmath, from definitions
and not from the sampling code. Other laws are in ``laws.py``.

A law maps a dataset to the masses of its outcomes inside a window. An outcome that a law does not
list has mass 0 or lies outside the window. If epsilon is finite, both datasets have one window,
which contains every likelihood ratio: beyond it, Laplace tails repeat the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, Final, TypeAlias

import mpmath
from mpmath import mp, mpf

from dpcore import DiscreteLaplace, SeededRng, read_noise
from tests.support.accounting.brute_force import binomial, worse
from tests.support.dpcore.protocol_laws import summed
from tests.support.laws import second

Masses: TypeAlias = dict[Any, Any]
Law: TypeAlias = Callable[[Any], Masses]

mp.dps = 40

USERS: Final = 3


def laplace(k: int, scale: Any) -> Any:
    return mpmath.tanh(1 / (2 * mpf(scale))) * mpmath.exp(-mpf(abs(k)) / scale)


@cache
def laplace_upto(k: int, scale: Any) -> Any:
    beta = mpmath.exp(-1 / mpf(scale))
    return beta ** (-k) / (1 + beta) if k < 0 else 1 - beta ** (k + 1) / (1 + beta)


def number(scale: Any, read: Callable[[Any], int] = int) -> Law:
    """One integer plus Laplace noise."""

    def law(value: Any) -> Masses:
        centre = read(value)
        return {k: laplace(k - centre, scale) for k in range(-40, 42)}

    return law


def vector(scale: Any, reach: int, read: Callable[[Any], Sequence[int]] = list) -> Law:
    """Integers plus independent Laplace noise."""

    def law(values: Any) -> Masses:
        window = range(-reach, reach + 7)
        sides = [[(k, laplace(k - centre, scale)) for k in window] for centre in read(values)]
        return {
            tuple(k for k, _ in cell): mpmath.fprod(mass for _, mass in cell)
            for cell in product(*sides)
        }

    return law


def shared_draw(scale: Any) -> Law:
    return lambda values: {tuple(v + z for v in values): laplace(z, scale) for z in range(-40, 41)}


def wrapped_sum(modulus: int) -> Law:
    """Laplace noise of scale 1, reduced by the modulus."""
    turns = range(-30, 31)
    return lambda value: {
        k: mpmath.fsum(laplace(k - value + modulus * turn, 1) for turn in turns)
        for k in range(modulus)
    }


def wrapped_noise(value: int) -> Masses:
    return {value + k: mass for k, mass in wrapped_sum(8)(0).items()}


def around(noise: str, reach: int, step: int = 1) -> Law:
    """A value in steps plus noise, by the reference of its law."""
    law = read_noise(noise)
    window = range(-reach, reach + 1)
    return lambda value: {k: second(law, "pmf", k - step * value) for k in window}


def gaussian(sigma_squared: int, step: int, reach: int) -> Law:
    return around(f"discrete-gaussian:sigma_squared={sigma_squared}", reach, step)


def rounded(scale: Any) -> Law:
    def law(value: float) -> Masses:
        up = mpf(value)
        return {
            k: (1 - up) * laplace(k, scale) + up * laplace(k - 1, scale) for k in range(-40, 42)
        }

    return law


def raw_once_in(runs: int) -> Law:
    """The amount rounded and with noise, or rarely as it is."""

    def law(amount: float) -> Masses:
        rare = mpf(1) / runs
        masses = {float(k): (1 - rare) * m for k, m in number(1, round)(amount).items()}
        return {**masses, amount: rare}

    return law


def fixed_seed(value: int) -> Masses:
    return {value + DiscreteLaplace(scale=1).sample(rng=SeededRng(20)): mpf(1)}


def bins(records: Sequence[int]) -> list[int]:
    return [records.count(0), records.count(1)]


def twice(bit: int) -> list[int]:
    return [bit, bit]


def polya_difference(k: int, shape: Any, scale: Any) -> Any:
    """P(X - Y = k) for Polya X, Y of that shape, beta = e^(-1/scale): a hypergeometric series."""
    n, beta = abs(k), mpmath.exp(-1 / mpf(scale))
    first = mpmath.rf(shape, n) / mpmath.factorial(n) * beta**n * (1 - beta) ** (2 * shape)
    return first * mpmath.hyp2f1(shape, shape + n, n + 1, beta**2)


def half_of_the_noise(value: int) -> Masses:
    """Two of four shares of Laplace noise of scale 10; the modulus 1041 has no effect here."""
    window = range(-60, 71)
    return {k: polya_difference(k - 10 * value, mpf(1) / 2, 10) for k in window}


def wrapped_shares(value: int) -> Masses:
    """Two Polya shares, each reduced mod 43."""
    turns = range(-3, 3)
    share = {
        k: mpmath.fsum(polya_difference(k + 43 * turn, mpf(1) / 2, 1) for turn in turns)
        for k in range(43)
    }
    return summed(({value: 1}, share, share))


def ordered_bits(value: int) -> Masses:
    """Each user sends ones first: the value of the first user and a fair bit of every user."""
    rows = {ones: (1,) * ones + (0,) * (2 - ones) for ones in range(3)}
    masses: Masses = {}
    for coins in product((0, 1), repeat=USERS):
        held = (coins[0] + value, *coins[1:])
        masses[sum((rows[ones] for ones in held), ())] = mpf(2) ** -USERS
    return masses


def shuffled_bits(value: int) -> Masses:
    """All orders of the same number of ones are equally likely."""
    ones = {value + k: mass for k, mass in binomial(USERS, mpf(1) / 2).items()}
    return {
        bits: ones[sum(bits)] / mpmath.binomial(2 * USERS, sum(bits))
        for bits in product((0, 1), repeat=2 * USERS)
        if sum(bits) in ones
    }


def multiset_of_shares(value: int) -> Masses:
    """Three Polya shares of scale 4, the first moved by 4 steps, sorted as residues mod 1013."""
    window = range(-24, 29)
    share = {k: polya_difference(k, mpf(1) / 3, 4) for k in range(-28, 29)}
    masses: Masses = {}
    for a, b in product(window, repeat=2):
        others = share[a] * share[b]
        for first in window:
            cell = tuple(sorted(k % 1013 for k in (first, a, b)))
            masses[cell] = masses.get(cell, mpf(0)) + share[first - 4 * value] * others
    return masses


def sum_of_shares(value: int) -> Masses:
    """The sum of the shares, which is Laplace noise of scale 4."""
    return {(k % 1013, 0, 0): laplace(k - 4 * value, 4) for k in range(-160, 165)}


def within(law: Law, pair: tuple[Any, Any] = (0, 1)) -> Callable[[int], Any]:
    """The epsilon between two datasets, from outputs of absolute value at most a reach."""

    def seen(reach: int) -> Any:
        cut = ({k: mass for k, mass in law(side).items() if abs(k) <= reach} for side in pair)
        return epsilon_between(*cut)

    return seen


BETA: Final = mpmath.exp(-1 / mpf(32))

LAWS: Final[dict[str, Law]] = {
    "half-scale": number(mpf(1) / 2),
    "ten-percent": number(mpf(10) / 11),
    "count": number(1),
    "clipped-to-two": number(1, lambda value: max(0, min(value, 2))),
    "clipped-to-one": number(1, lambda value: max(0, min(value, 1))),
    "one-sided": lambda value: {value + k: (2 - (k == 0)) * laplace(k, 1) for k in range(40)},
    "inverted-scale": vector(mpf(1) / 2, 9, bins),
    "histogram": vector(2, 12, bins),
    "noise-reused": shared_draw(2),
    "two-days": vector(2, 12),
    "wrapped-noise": wrapped_noise,
    "wrapped-sum": wrapped_sum(8),
    "rounded-sensitivity": rounded(mpf(1) / 2),
    "rounded": rounded(1),
    "returning-user": vector(1, 9, twice),
    "returning-user-composed": vector(2, 12, twice),
    "gaussian-as-pure": gaussian(1, 1, 60),
    "gaussian-with-delta": gaussian(1, 1, 60),
    "sigma-for-its-square": gaussian(2, 1, 60),
    "gaussian-of-four": gaussian(4, 1, 80),
    "classical-gaussian": gaussian(322, 100, 700),
    "exact-gaussian": gaussian(611, 100, 900),
    "raw-in-a-hundred": raw_once_in(100),
    "raw-in-a-thousand": raw_once_in(1000),
    "raw-in-a-hundred-thousand": raw_once_in(100_000),
    "rounded-amount": number(1, round),
    "fixed-seed": fixed_seed,
    "inverted-odds": number(-1 / mpmath.log(1 - BETA)),
    "polya-shares": number(32),
    "broadcast-draw": shared_draw(1),
    "arms": vector(1, 4),
    "order-kept": ordered_bits,
    "binary-shuffle": shuffled_bits,
    "skellam-mean-as-variance": around("skellam:variance=8", 64, 4),
    "skellam-sum": around("skellam:variance=16", 64, 4),
    "dropout-blind": half_of_the_noise,
    "dropouts-counted": half_of_the_noise,
    "shuffled-polya": multiset_of_shares,
    "aggregated-polya": sum_of_shares,
    "wrapped-shares": wrapped_shares,
    "wrapped-messages": wrapped_sum(43),
}
r"""One law a name, broken or twin."""


GROWING: Final[dict[str, Callable[[int], Any]]] = {
    # |ln ratio| = k + 1/2 at output -k.
    "gaussian-as-pure": within(gaussian(1, 1, 60)),
    # Ratios of Bessel functions, which grow like (m/v)^4.
    "skellam-mean-as-variance": within(around("skellam:variance=8", 64, 4)),
}
r"""For an entry of infinite epsilon without a revealing outcome: the epsilon within a reach."""


def epsilon_between(a: Masses, b: Masses) -> Any:
    """The largest |ln(a/b)| over the outcomes that are possible on both datasets."""
    return max(
        (abs(mpmath.log(a[k] / b[k])) for k in a.keys() & b.keys() if a[k] and b[k]),
        default=mpf(0),
    )


def revealing(a: Masses, b: Masses) -> Any:
    """The mass of outcomes of one dataset that are impossible on the other; the larger side."""
    return max(mpmath.fsum(p for k, p in x.items() if not y.get(k)) for x, y in ((a, b), (b, a)))


def delta_between(a: Masses, b: Masses, epsilon: Any) -> Any:
    """The smallest delta at epsilon, the larger of both directions."""
    return worse([(a.get(k, 0), b.get(k, 0)) for k in a.keys() | b.keys()], epsilon)
