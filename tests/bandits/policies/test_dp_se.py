"""DP-SE: Sajed and Sheffet's epochs, over discrete noise."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import play
from bandits.policies.elimination import DpSe, EliminationState, epoch_pulls
from bandits.radius.radius import DpSeRadius, ExactRadius
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.sampling.rng import SeededRng
from tests.support.bandits.worlds import Given

DP_SE = DpSe(epsilon="1/2", failure="1e-6", radius=DpSeRadius())


@pytest.mark.parametrize("epsilon", ["0.01", "1/2", 3])
@pytest.mark.parametrize("active", [2, 10])
@pytest.mark.parametrize("epoch", [1, 2, 6])
def test_an_epoch_is_as_long_as_the_paper_says(epoch: int, active: int, epsilon: object) -> None:
    gap, odds = mpmath.mpf(2) ** -epoch, active * epoch**2 / mpmath.mpf("0.1")
    eps = mpmath.mpf(Fraction(str(epsilon)).numerator) / Fraction(str(epsilon)).denominator
    reward = 32 * mpmath.log(8 * odds) / gap**2
    noise = 8 * mpmath.log(4 * odds) / (eps * gap)
    expected = int(mpmath.ceil(max(reward, noise))) + 1
    assert epoch_pulls(epoch, active, epsilon, "0.1") == expected  # type: ignore[arg-type]  # all rationals


def test_rewards_are_encoded_in_about_the_root_of_the_epoch() -> None:
    for n in (857, 900, 901, 10**6):
        protocol = DP_SE.privatizer.protocol(n)
        assert (protocol.precision - 1) ** 2 < n <= protocol.precision**2
        assert protocol.planned_noise == DiscreteLaplace(scale=2 * protocol.precision)


def test_an_arm_goes_when_it_is_two_widths_below_the_best() -> None:
    state = DP_SE.init(3, 10**6)
    n = DP_SE.pulls(state)
    width = DP_SE.radius.width(DP_SE.privatizer, n, batch=1, active=3, failure="1/10")
    h, c = mpmath.sqrt(mpmath.log(240) / (2 * n)), mpmath.log(120) * 2 / n
    assert width == pytest.approx(float(h + c), rel=1e-12)
    below = Fraction(2 * width) * n
    edge = [Fraction(n), n - below, n - below - Fraction(1, 10**6)]
    after = DP_SE.observe(state, Released(tuple(map(ReleasedSum, edge))))
    assert (after.active, after.batch) == ((0, 1), 2)
    assert DP_SE.choose(after) == Pulls((epoch_pulls(2, 2, "1/2", "1/10"),) * 2 + (0,))
    assert DP_SE.choose(EliminationState(arms=3, active=(2,), batch=4)) == Commit(2)


def test_another_radius_takes_the_place_of_the_papers() -> None:
    never = DpSe(epsilon="1/2", failure="1e-6", radius=Given(beta=10.0))
    state = never.init(2, 10**6)
    n = never.pulls(state)
    sums = Released((ReleasedSum(Fraction(n)), ReleasedSum(Fraction(0))))
    assert never.observe(state, sums).active == (0, 1)
    exact = DpSe(epsilon="1/2", failure="1e-6")
    assert exact.radius == ExactRadius()
    assert exact.observe(state, sums).active == (0,)
    assert exact.pulls(state) == n


def test_the_best_arm_is_found_and_every_release_is_pure() -> None:
    world, rng = np.random.default_rng(1), SeededRng(1)
    run = play(DP_SE, Bernoulli(means=(0.3, 0.9, 0.1)), horizon=10**5, world=world, rng=rng)
    assert run.pulls[1] > 9 * 10**4
    assert run.guarantee is not None
    assert run.guarantee.pure().upper == Fraction(1, 2)
    assert len(run.releases) == 3
    sizes = DP_SE.sizes(3, 10**5)
    assert {pulled for pulled in run.pulls if pulled < 10**4} <= set(sizes)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("epsilon", {"epsilon": 0}),
        ("epsilon", {"epsilon": -1}),
        ("failure", {"failure": 0}),
        ("confidence", {"confidence": 1}),
        ("radius", {"radius": "paper"}),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused_by_name(name: str, change: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        DpSe(**{"epsilon": 1, "failure": "1e-6", **change})  # type: ignore[arg-type]  # what is refused
    assert refused.value.argument == name


def test_no_arms_and_short_horizons_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="arms"):
        DP_SE.init(0, 10)
    with pytest.raises(InvalidParameter, match="horizon"):
        DP_SE.init(10, 9)
