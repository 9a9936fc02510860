r"""Sums of discrete Gaussians: the reference unrolled, thresholds and batches by other paths.

What every law promises is asked by the contract suite; here stands what belongs to this law alone.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

from dpcore import DiscreteGaussian, Enclosure
from dpcore.laws import discrete_gaussian_sum as module
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.noise import batch_of
from dpcore.numbers.enclosure import ball, narrow
from dpcore.sampling.inversion import InversionTable
from tests.effort import by_day
from tests.support.dpcore import second_path
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.tables import check_table, misplaced
from tests.support.laws import discrete_gaussian_sum as second
from tests.support.laws import reach

# -- the table -----------------------------------------------------------------------------------


def table_of(noise: DiscreteGaussianSum) -> InversionTable:
    batch = batch_of(noise)
    assert isinstance(batch, InversionTable)
    return batch


@by_day(2)
@pytest.mark.parametrize(
    ("count", "sigma_squared"),
    [(2, "1/1000000"), (3, "1/50"), (16, "1/4"), (1, "1"), (5, "20"), (64, "16.01"), (7, "401")],
)
def test_every_threshold(count: int, sigma_squared: str) -> None:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    check_table(table_of(noise), lambda k: second.cdf(noise, k))
    assert table_of(noise).thresholds[0] == 0


@by_day(1)
@pytest.mark.parametrize(("count", "sigma_squared"), [(1000, "400.5"), (1 << 20, "1/3")])
def test_thresholds_of_long_sums(count: int, sigma_squared: str) -> None:
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    table = table_of(noise)
    thresholds = table.thresholds.tolist()
    for place in range(3, len(table), len(table) // 5):
        k = table.first + place
        assert misplaced([thresholds[place]], k, lambda k: second.cdf(noise, k)) == []
        assert misplaced([thresholds[place] + 2], k, lambda k: second.cdf(noise, k)) == [k]


TABLE_MUTANTS = {
    "the move starts one late": ("half + 1 - Fraction", "half + 2 - Fraction"),
    "the move is not centred": ("half + 1 - Fraction(noise.count, 2)", "Fraction(half + 1)"),
    "the step is constant": ("low = (low * shrink_low) >> FIXED_BITS", "low = low"),
    "moved by one more": ("masses[abs(k - noise.count)]", "masses[abs(k - noise.count + 1)]"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE_MUTANTS)
def test_a_mutant_of_the_table_is_caught(name: str) -> None:
    noise = DiscreteGaussianSum(count=5, sigma_squared=20)
    broken = mutated(module._table, *TABLE_MUTANTS[name])
    try:
        table = broken(noise)
    except Exception as refused:  # noqa: BLE001 - a table that cannot be built is caught too
        assert "rise" in str(refused) or "below" in str(refused)  # noqa: PT017 - either is right
        return
    wrong = misplaced(table.thresholds.tolist(), table.first, lambda k: second.cdf(noise, k))
    assert wrong


# -- identities ----------------------------------------------------------------------------------


def misses_the_move(noise: DiscreteGaussianSum, k: int, rate: Fraction) -> bool:
    r"""Whether P(X = k + n) = P(X = k) e^(-(k + n/2) rate), rate = 1/v, is certainly false."""
    n = noise.count
    one, other = noise.enclose_pmf(k + n, 160), noise.enclose_pmf(k, 160)
    power = (k + Fraction(n, 2)) * rate
    factor = narrow(lambda: (-ball(power)).exp(), 160)  # noqa: PLW0108 - one precision a call
    moved = Enclosure(other.lower * factor.lower, other.upper * factor.upper)
    return not one.overlaps(moved)


@pytest.mark.parametrize(
    ("count", "v"), [(1, "1/2"), (3, "1/50"), (16, "1/4"), (7, "401"), (4, "1e12")]
)
def test_masses_move_by_whole_sums(count: int, v: str) -> None:
    # For k > -n/2 the code finds both from the same mass; contour sums at k + n are the other way.
    noise, exact = DiscreteGaussianSum(count=count, sigma_squared=v), Fraction(v)
    for k in (0, 1, -2, 2 * count + 1):
        assert not misses_the_move(noise, k, 1 / exact)
        assert k + Fraction(count, 2) == 0 or misses_the_move(
            noise, k, 1 / exact * Fraction(10**9 + 1, 10**9)
        )


@pytest.mark.parametrize("v", ["1/100", "1/4", "1", "401", "1e12"])
def test_a_sum_of_one_is_the_law_itself(v: str) -> None:
    one, other = DiscreteGaussianSum(count=1, sigma_squared=v), DiscreteGaussian(sigma_squared=v)
    assert one.variance.overlaps(other.variance)
    for k in (0, 1, 3, reach(other), 5 * reach(other)):
        assert one.enclose_pmf(k).overlaps(other.enclose_pmf(k))
        assert one.enclose_sf(k).overlaps(other.enclose_sf(k))


def test_a_sum_is_no_discrete_gaussian() -> None:
    # The reason why the law exists: for small v the law of as much variance is another one.
    noise = DiscreteGaussianSum(count=2, sigma_squared="1/4")
    alike = DiscreteGaussian(sigma_squared="1/2")
    assert not noise.enclose_pmf(0).overlaps(alike.enclose_pmf(0))


@pytest.mark.nightly
@given(
    st.integers(1, 40),
    st.fractions(min_value=-2, max_value=6, max_denominator=100),
    st.floats(0, 25),
    st.sampled_from(["pmf", "log_pmf", "cdf", "sf"]),
)
def test_floats_at_any_parameters(count: int, octave: Fraction, x: float, function: str) -> None:
    sigma_squared = Fraction(2.0 ** float(octave)).limit_denominator(1000)
    noise = DiscreteGaussianSum(count=count, sigma_squared=sigma_squared)
    k = round(x * reach(noise))
    value = getattr(noise, function)(k)
    with second_path.digits(40):
        exact = getattr(second, function)(noise, k)
        assert abs(value - exact) <= abs(exact) * mpf(10) ** -13 or abs(exact) < mpf("1e-300")
