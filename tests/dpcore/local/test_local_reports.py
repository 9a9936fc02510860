"""Tests of local reports: laws, samplers and estimates against enumeration in rationals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting import guarantee
from dpcore.errors import InvalidParameter
from dpcore.local import (
    Encoding,
    Frequencies,
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    SubsetSelection,
    UnaryEncoding,
    estimated_counts,
    randomizers,
)
from dpcore.local.randomizers import GRID, below, flip, inner_product_counts, subset
from dpcore.numbers.clopper_pearson import proven_upper_end
from dpcore.sampling.rng import SeededRng
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.scripted_rng import Dealt
from tests.support.enumerate_random_choices import Forking, unroll


class Symmetric(UnaryEncoding):
    """Another encoding, constructed like all others."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, encoding=Encoding.SYMMETRIC)


FAMILIES: tuple[Callable[..., LocalReport], ...] = (
    RandomisedResponse,
    UnaryEncoding,
    Symmetric,
    SubsetSelection,
    LocalHashing,
    HadamardResponse,
)
ALL = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)


@ALL
@pytest.mark.parametrize("epsilon", ["1/3", 4])
def test_no_report_exceeds_epsilon_and_each_nearly_attains_it(
    family: Callable[..., LocalReport], epsilon: Any
) -> None:
    made = family(epsilon=epsilon, values=6)
    with mpmath.workdps(60):
        asked = mpmath.exp(mpmath.mpf(made.epsilon.numerator) / made.epsilon.denominator)
        ratio = mpmath.mpf(made.ratio.numerator) / made.ratio.denominator
        assert ratio <= asked
        if made.epsilon <= 4:  # beyond 4, the least probability 2^-32 limits the law
            assert ratio > asked * (1 - mpmath.mpf(2) ** -24)
    found = guarantee(made)
    assert made.loss.lower <= found.pure().upper <= made.epsilon


def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace coins and uniform integers by single forks; both have tests of their own below."""

    def one_flip(probability: Fraction, count: int, rng: Forking) -> Any:
        weights = (1 - probability, probability)
        return np.array([bool(rng.choose(weights, "coin")) for _ in range(count)], dtype=bool)

    def one_below(bound: int, count: int, rng: Forking) -> Any:
        drawn = [rng.choose([Fraction(1, bound)] * bound, "below") for _ in range(count)]
        return np.array(drawn, dtype=np.int64)

    monkeypatch.setattr(randomizers, "flip", one_flip)
    monkeypatch.setattr(randomizers, "below", one_below)


def unrolled(made: LocalReport, value: int) -> dict[Any, Fraction]:
    def sampler(rng: Forking) -> Any:
        [found] = made.report([value], rng=rng)
        return tuple(map(int, found)) if np.ndim(found) else int(found)

    law = unroll(sampler, open_mass=Fraction(0))
    assert law.leftover == 0
    return dict(law.lower)


@ALL
@pytest.mark.parametrize(("values", "epsilon"), [(2, "1/10"), (4, "1/2"), (5, "9/4")])
def test_the_sampler_of_a_report_has_the_law_of_two_numbers(
    family: Callable[..., LocalReport], values: int, epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = family(epsilon=epsilon, values=values)
    laws = [made.law(v) for v in range(values)]
    assert [sum(law.values()) for law in laws] == [1] * values
    assert max(p[x] / q[x] for p in laws for q in laws for x in p) == made.ratio
    supported = {x: made.supports(np.array([x])).tolist() for x in laws[0] | laws[-1]}
    for (v, law), w in product(enumerate(laws), range(values)):
        mass = sum((law[x] for x in law if supported[x][w]), Fraction(0))
        assert mass == (made.own if w == v else made.other)
    # Every path of the code, with its exact weight.
    stubbed(monkeypatch)
    assert [unrolled(made, v) for v in range(values)] == laws
    if family is SubsetSelection and values > 2:  # a wide subset has the same law

        def one_subset(wanted: int, size: int, rng: Forking) -> Any:
            sets = list(combinations(range(size), wanted))
            chosen = sets[rng.choose([Fraction(1, len(sets))] * len(sets), "subset")]
            return np.isin(np.arange(size), chosen)

        monkeypatch.setattr(randomizers, "_WIDE", 1)
        monkeypatch.setattr(randomizers, "subset", one_subset)
        assert [unrolled(made, v) for v in range(values)] == laws


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        (RandomisedResponse, "self.own, len", "self.own - Fraction(1, GRID), len"),
        (UnaryEncoding, "flip(self.own", "flip(self.other"),
        (SubsetSelection, "found[starts + (k - 1)] = found[own]", "pass"),
        (HadamardResponse, "odd == flip", "odd != flip"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_wrong_sampler_is_detected(
    family: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubbed(monkeypatch)
    wrong = mutated(family._encode, old, new, GRID=GRID)
    monkeypatch.setattr(family, "_encode", wrong)
    made = family(epsilon="1/2", values=5)
    assert unrolled(made, 1) != made.law(1)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_subset_is_uniform_for_all_keys(wanted: int) -> None:
    def counted(draw: Callable[..., Any]) -> Counter[tuple[bool, ...]]:
        found: Counter[tuple[bool, ...]] = Counter()
        for keys in product(range(4), repeat=3):
            # The second keys are used only if the first ones do not determine a set.
            rng = Dealt(*keys, 5, 6, 7)
            chosen = draw(wanted, 3, rng)
            if len(rng.left) == 3:
                found[tuple(chosen.tolist())] += 1
        return found

    found = counted(subset)
    assert {sum(chosen) for chosen in found} == {wanted}
    assert len(found) == math.comb(3, wanted)
    assert len(set(found.values())) == 1
    if wanted:
        stuck = mutated(subset, "== wanted", "<= wanted")
        assert {sum(chosen) for chosen in counted(stuck)} != {wanted}


@pytest.mark.parametrize("users", [1, 254, 255, 256])
def test_bits_are_counted_across_bytes(users: int) -> None:
    made = UnaryEncoding(epsilon=1, values=3)
    reports = made.report([1] * users, rng=SeededRng(7)) | np.array([False, False, True])
    plain = [sum(column) for column in zip(*reports.tolist(), strict=True)]
    assert made.supports(reports).tolist() == made.supports(1 * reports).tolist() == plain
    assert plain[2] == users
    wrong = mutated(UnaryEncoding.supports, "most = 255", "most = 256")
    assert (users, wrong(made, reports)[2]) in ((1, 1), (254, 254), (255, 255), (256, 0))


@pytest.mark.parametrize("threshold", [1, 0x1234567, 0xFF000000, 0xFF000001, GRID - 1, 5 << 24])
def test_a_coin_compares_32_random_bits(threshold: int) -> None:
    for drawn in {0, threshold - 1, threshold, threshold ^ 0x01000000, GRID - 1}:
        if not 0 <= drawn < GRID:
            continue
        rng = Dealt(drawn >> 24, (drawn & 0xFFFFFF) << 40 | 0xABCD)
        assert flip(Fraction(threshold, GRID), 1, rng).tolist() == [drawn < threshold]
    wrong = mutated(flip, "< rest", "<= rest")
    assert wrong(Fraction(0x101, GRID), 1, Dealt(0, 0x101 << 40)).tolist() == [True]


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 65537, (1 << 31) + 1])
def test_every_integer_below_a_bound_has_equally_many_words(bound: int) -> None:
    """The 32-bit numbers accepted for i lie between two edges, 2^32 div bound apart."""
    refused, each = GRID % bound, GRID // bound
    for i in {0, min(1, bound - 1), bound // 2, bound - 1}:
        first = -(-(i * GRID + refused) // bound)
        last = first + each - 1
        sent = 0xFFFFFFFF  # accepted for any bound: the second draw
        for drawn in (first, last):
            assert below(bound, 1, Dealt(drawn, sent << 32)).tolist() == [i]
        if refused and first:
            # The neighbour belongs to i - 1, or is refused and drawn again.
            again = below(bound, 1, Dealt(first - 1, sent << 32)).tolist()
            assert again in ([i - 1], [bound - 1])
    loose = mutated(below, "GRID % bound", "0")
    if bound == 3:
        assert loose(bound, 1, Dealt(0)).tolist() == [0]
        assert below(bound, 1, Dealt(0, 0xFFFFFFFF << 32)).tolist() == [2]


@pytest.mark.parametrize(("base", "digits"), [(2, 4), (3, 3), (5, 2), (7, 1)])
def test_inner_products_of_columns_are_counted(base: int, digits: int) -> None:
    size = base**digits
    table = np.random.default_rng(1).integers(50, size=(size, base))

    def inner(s: int, v: int) -> int:
        products = ((s // base**i) * (v // base**i) for i in range(digits))
        return int(sum(products)) % base

    plain = [sum(int(table[s, inner(s, v)]) for s in range(size)) for v in range(size)]
    assert inner_product_counts(table, base, digits).tolist() == plain


@ALL
def test_estimates_are_unbiased_with_the_exact_variance(family: Callable[..., LocalReport]) -> None:
    """Sum over all reports of two users, whose values are 0 and 1 of three."""
    made = family(epsilon=1, values=3)
    mean, second = [Fraction(0)] * 3, [Fraction(0)] * 3
    for (x, p), (y, q) in product(made.law(0).items(), made.law(1).items()):
        found = made.estimate(np.array([x, y]))
        for v in range(3):
            mean[v] += p * q * found.count(v)
            second[v] += p * q * found.count(v) ** 2
    assert mean == [1, 1, 0]
    spreads = [b - a * a for a, b in zip(mean, second, strict=True)]
    assert spreads == [made.variance(2, 1), made.variance(2, 1), made.variance(2)]
    assert np.allclose(found.counts, [float(found.count(v)) for v in range(3)])
    for wrong in ((-1, 0), (2, 3), (2, -1)):
        with pytest.raises(InvalidParameter, match=r"^(users|count) = "):
            made.variance(*wrong)
    for value in (-1, 3):
        with pytest.raises(InvalidParameter, match=r"^value = "):
            made.law(value)


def coverage(ends: Callable[[int], tuple[Fraction, Fraction]], count: int, users: int) -> Fraction:
    """P(the interval contains ``count``) with coins of 3/4 and 1/4, exactly."""
    law = [Fraction(1)]
    for user in range(users):
        p = Fraction(3 if user < count else 1, 4)
        none = Fraction(0)
        law = [(1 - p) * a + p * b for a, b in zip([*law, none], [none, *law], strict=True)]
    return sum(
        (mass for seen, mass in enumerate(law) if ends(seen)[0] <= count <= ends(seen)[1]),
        Fraction(0),
    )


def test_intervals_cover_according_to_exact_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    users, asked = 13, Fraction(9, 10)

    def ends(seen: int) -> tuple[Fraction, Fraction]:
        found = Frequencies(
            users=users, supports=np.array([seen]), own=Fraction(3, 4), other=Fraction(1, 4)
        )
        return found.interval(0, asked)

    covered = [coverage(ends, count, users) for count in range(users + 1)]
    assert min(covered) >= asked
    plain = proven_upper_end
    monkeypatch.setattr(
        estimated_counts, "proven_upper_end", lambda s, n, level: plain(s, n, 3 * level)
    )
    assert min(coverage(ends, count, users) for count in range(users + 1)) < asked


def test_the_end_of_an_interval_is_proven_and_nearly_the_least() -> None:
    level = Fraction(1, 40)
    for seen, n in ((0, 10), (3, 10), (9, 10), (100, 200)):
        u = proven_upper_end(seen, n, level)

        def missed(at: Fraction, seen: int = seen, n: int = n) -> Fraction:
            terms = (math.comb(n, i) * at**i * (1 - at) ** (n - i) for i in range(seen + 1))
            return sum(terms, Fraction(0))

        assert missed(u) <= level < missed(u - Fraction(1, 1 << 39))


def test_a_changed_probability_changes_the_guarantee() -> None:
    class Bolder(RandomisedResponse):
        own = Fraction(9, 10)

    found = guarantee(Bolder(epsilon=1, values=4))
    assert abs(float(found.pure().upper) - math.log(27)) < 1e-8


@ALL
def test_invalid_arguments_are_refused(family: Callable[..., LocalReport]) -> None:
    for epsilon, values in ((0, 3), (1, 1), ("1e-12", 1000)):
        with pytest.raises(InvalidParameter):
            family(epsilon=epsilon, values=values)
    with pytest.raises(InvalidParameter, match="reports would carry no information"):
        family(epsilon="1e-30", values=2)
    made = family(epsilon=1, values=3)
    bad: list[Any] = [[], [3], [-1], [[1]], [0.5], ["a"]]
    for users in bad:
        with pytest.raises(InvalidParameter, match="value"):
            made.report(users)
    wrong: list[Any] = [5, np.array(1), None, [[0, 1], [0]], [[[0, 1]]], [], [-1], [0.5], ["a"]]
    for reports in wrong:
        with pytest.raises(InvalidParameter, match="reports"):
            made.estimate(reports)
    if family in (UnaryEncoding, LocalHashing):
        with pytest.raises(InvalidParameter, match="reports"):
            made.estimate(np.array([[9, 9, 9]]))


def test_counts_do_not_depend_on_the_width_of_the_integers() -> None:
    made = LocalHashing(epsilon=2, values=20)
    reports = made.report(np.arange(500) % 20, rng=SeededRng(1))
    short = reports.astype(np.uint8)
    # Each number fits into a byte, but seed times base does not.
    assert np.array_equal(short, reports)
    assert int(reports[:, 0].max()) * made.base > 255
    counts = made.estimate(reports).supports
    assert np.array_equal(made.estimate(short).supports, counts)
    narrow = mutated(LocalHashing.supports, ".astype(np.int64)", "")
    assert not np.array_equal(narrow(made, short), counts)
