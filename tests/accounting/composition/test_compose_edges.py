r"""Lists of releases at the edges of the engines: what was wide, slow or wrong once."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from accounting import (
    Approx,
    Description,
    Gaussian,
    PrivacyCurve,
    Pure,
    compose,
    guarantee,
    per_user,
    routes,
)
from accounting.descriptions.sampling_schemes import Poisson
from accounting.fourier.pld_composition import ContourIntegral
from accounting.fourier.real_loss import TabledLoss
from accounting.law_pairs.registry import pair_of
from accounting.loss.cell_table import Focus
from accounting.loss.integer_cells import IntegerPair
from accounting.theorems.real_gaussian import real_gaussian_delta
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    PolyaDifference,
    Sensitivity,
    Skellam,
)
from dpcore.laws.poisson import Poisson as PoissonNoise
from dpcore.selection import NoisyMax
from tests.support.accounting.amounts import ends
from tests.support.accounting.lists import curve, sampled


def test_a_total_that_reveals_almost_surely_has_a_delta_of_at_most_one() -> None:
    """Hidden masses of the rounds add up to 1 and a rounding, in floats."""
    found = ends(compose((curve(PoissonNoise(mean="1/602"), 3), 3)).delta(0))
    # All three rounds hide the data set only where each draws 3 or more.
    assert 0.99999 < found.lower <= 1 - Fraction(1, 10**29) <= found.upper == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_largest_loss_of_a_sample_is_not_that_of_any_noise(rounds: int) -> None:
    one = sampled(DiscreteLaplace(scale=100), "9/10")
    total, single = ends(compose((one, rounds)).epsilon(0)), one.enclose_epsilon(0)
    assert total.lower <= rounds * single.upper
    assert rounds * single.lower <= total.upper
    assert total.upper - total.lower < Fraction(1, 10**15)


@pytest.mark.parametrize(
    ("claim", "delta", "epsilon"),
    [
        (Approx(1, "1e-6"), "1e-6", 1),
        (Approx(0, "1e-3"), "1e-3", 0),
        (Approx(1, 1), "1/2", math.inf),
        (Approx(1, "1/10"), "1/20", math.inf),
    ],
)
def test_a_claim_at_its_own_delta_is_itself(claim: Approx, delta: str, epsilon: float) -> None:
    found = compose(claim).epsilon(delta)
    assert (found.lower, found.upper) == (epsilon, epsilon)


def test_a_tiny_delta_is_not_lost() -> None:
    found = compose(Approx(1, "1e-60")).delta(2)
    assert isinstance(found.lower, Fraction)
    assert isinstance(found.upper, Fraction)
    least, most = (end / Fraction("1e-60") - 1 for end in (found.lower, found.upper))
    assert -Fraction(1, 10**15) < least <= most < Fraction(1, 10**15)


@pytest.mark.nightly
def test_a_law_too_wide_to_be_listed_is_held_from_both_sides() -> None:
    found = compose((curve(Skellam(variance=10**8), 100), 1000)).epsilon("1e-6")
    assert isinstance(found.lower, Fraction)
    assert isinstance(found.upper, Fraction)
    assert found.upper / found.lower - 1 < Fraction(1, 10**5)
    # The squared shift of the real Gaussian that it tends to is 1000 100^2/10^8 = 1/10.
    assert real_gaussian_delta(math.sqrt(10), found.upper).lower <= Fraction("1.0001e-6")
    assert real_gaussian_delta(math.sqrt(10), found.lower).upper >= Fraction("0.9999e-6")


def test_a_listing_that_is_too_long_to_name_goes_to_the_line() -> None:
    wide, wider = (curve(DiscreteGaussian(sigma_squared=v)) for v in (10**10, 2 * 10**10))
    found = ends(compose((wide, 10**9), (wider, 10**9)).epsilon("1e-6"))
    # 10^9 (1/10^10 + 1/(2 10^10)) = 3/20 is the squared shift of a real Gaussian.
    ratio = math.sqrt(20 / 3)
    assert isinstance(found.upper, Fraction)
    assert real_gaussian_delta(ratio, found.lower).upper >= Fraction("0.99e-6")
    assert real_gaussian_delta(ratio, found.upper).lower <= Fraction("1.01e-6")


def test_a_small_sample_of_a_gaussian_has_a_finite_epsilon() -> None:
    found = ends(
        compose((sampled(DiscreteGaussian(sigma_squared=4), "1e-3"), 10**4)).epsilon("1e-6")
    )
    # By a transform on a grid of 2e-5, elsewhere: 0.20493.
    assert abs(found.upper_float - 0.20493) < 1e-5
    assert found.upper - found.lower < Fraction(1, 10**6)


@pytest.mark.nightly
def test_a_wide_polya_difference_keeps_its_digits() -> None:
    noise = PolyaDifference(shape=2, scale=1000)
    found = ends(compose((curve(noise, 10), 1000)).epsilon("1e-6", "1e-7"))
    assert found.upper - found.lower < found.upper / 10**7


def test_coins_that_floats_do_not_hold_are_in_a_tail() -> None:
    # The losses of all 133,341 outcomes one by one take a minute.
    coins = curve(Binomial(trials=133_341, probability="2/5"), 7)
    table = IntegerPair(pair=pair_of(coins.noise, 7))
    assert len(table.cells(table.edges(Focus(1.0), 10**6)).p.value) < 20_000
    found, single = ends(compose(coins).epsilon("1e-6")), ends(coins.epsilon("1e-6"))
    assert found.lower <= single.upper
    assert single.lower <= found.upper <= single.lower * Fraction(1001, 1000)


def test_rare_coins_are_sampled() -> None:
    coins = sampled(Binomial(trials=1000, probability="1/2"), "1/100")
    found = ends(compose((coins, 100)).epsilon("1e-6"))
    assert found.upper - found.lower < found.upper / 10**5


def test_losses_that_are_large_are_told_apart() -> None:
    found = ends(compose((Pure(600), 2), Pure(1)).delta(1100))
    assert found.lower > 1 - Fraction(1, 10**6)


def test_losses_beyond_floats_are_bounded_by_their_sum() -> None:
    found = ends(compose((Pure(10**6), 2), Pure(1)).epsilon("1e-6"))
    assert 2 * 680 < found.lower <= found.upper == 2 * 10**6 + 1


def test_many_rounds_of_few_losses_are_not_named_one_by_one() -> None:
    found = compose((sampled(DiscreteLaplace(scale=1), "1/100"), 6400)).epsilon("1e-6")
    assert found.method == "contour"


def test_the_guarantee_of_a_user_does_not_compose_with_that_of_a_contribution() -> None:
    visit = curve(Skellam(variance=400))
    user = per_user(visit, max_visits=4)
    assert compose(user, user).scope == user.scope
    for mixed in ((user, visit), (visit, user)):
        with pytest.raises(InvalidParameter, match="scopes do not compose"):
            compose(*mixed)
    with pytest.raises(InvalidParameter, match="has unit user"):
        per_user(user, max_visits=2)


def test_groups_of_different_sizes_do_not_compose() -> None:
    laplace, poisson = DiscreteLaplace(scale=10), Poisson(rate="1/10")
    one, three = (Description(noise=laplace, group=group) for group in (1, 3))
    assert compose(three, three).pure().upper == Fraction(3, 5)
    two, four = (
        Description(noise=Gaussian(sigma=5), scheme=poisson, group=group) for group in (2, 4)
    )
    for mixed in (
        (one, three),
        ((three, 2), one),
        (two, four),
        (guarantee(two), (guarantee(four), 3)),
        (compose(two), compose(four)),
        (three, Mechanism(noise=laplace, sensitivity=1)),
        (three, NoisyMax(epsilon=1, sensitivity=1)),
    ):
        with pytest.raises(InvalidParameter, match="groups of different sizes do not compose"):
            compose(*mixed)


@pytest.mark.nightly
def test_a_delta_beyond_every_float_is_bounded_at_once() -> None:
    far = compose(curve(Skellam(variance=400))).delta(100)
    assert far.lower is not None
    assert 0 <= far.lower <= far.upper < Fraction(1, 10**300)
    assert len(repr(far)) < 200


def test_a_loss_of_any_size_is_searched_for() -> None:
    found = ends(compose(curve(DiscreteLaplace(scale=20), 10**15)).epsilon("1e-6"))
    assert Fraction("0.99") * 10**15 / 20 < found.lower <= found.upper <= Fraction(10**15, 20)


def test_routes_take_any_guarantee() -> None:
    visit = curve(Skellam(variance=400))
    assert routes(visit, "1e-6") == routes(compose(visit), "1e-6")


@pytest.mark.parametrize("bounds", [(1, 1), (1, 2), (2, 1, 1)])
def test_the_worst_signs_of_a_box_bound_from_below(bounds: tuple[int, ...]) -> None:
    # Where bounds are equal mixed signs are worse than aligned ones, which were all that was tried.
    p = Fraction(11, 25)
    mass = {k: float(math.comb(3, k) * p**k * (1 - p) ** (3 - k)) for k in range(4)}

    def apart(shift: tuple[int, ...]) -> float:
        def law(x: tuple[int, ...], shift: tuple[int, ...]) -> float:
            return math.prod(mass.get(k - d, 0.0) for k, d in zip(x, shift, strict=True))

        cells = itertools.product(range(-3, 7), repeat=len(shift))
        still = tuple(0 for _ in shift)
        return math.fsum(max(law(x, still) - math.exp(0.617) * law(x, shift), 0) for x in cells)

    signed = [
        tuple(s * d for s, d in zip(signs, bounds, strict=True))
        for signs in itertools.product((1, -1), repeat=len(bounds))
    ]
    truth, aligned = max(map(apart, signed)), max(apart(signed[0]), apart(signed[-1]))
    box = curve(Binomial(trials=3, probability=p), Sensitivity.box(bounds))
    found = ends(compose(box).delta("0.617"))
    assert math.isclose(found.lower, truth, rel_tol=1e-7)
    assert (aligned < truth - 1e-3) is (bounds == (1, 1))
    assert truth <= found.upper


def test_rare_losses_far_beyond_epsilon_do_not_hide_a_small_delta() -> None:
    pair = TabledLoss(
        kinds=sampled(DiscreteGaussian(sigma_squared=1), "1/100").directions[0], above=True
    )
    found = ContourIntegral(parts=((pair, 100),)).delta(20, "1e-8")
    assert found.upper < Fraction("1e-75")
    assert found.width < found.upper / 10**4


@pytest.mark.parametrize("rounds", [1, 3])
def test_laws_without_a_common_output_reveal_the_dataset(rounds: int) -> None:
    bare = PrivacyCurve(noise=Binomial(trials=1, probability="1/20"), sensitivity=2)
    other = PrivacyCurve(noise=DiscreteLaplace(scale=3), sensitivity=1)
    for total in (compose((bare, rounds)), compose((bare, rounds), (other, 2))):
        assert (total.delta(5).lower, total.delta(5).upper) == (1, 1)
        assert (total.epsilon("1e-6").upper, total.pure().upper) == (math.inf, math.inf)
