"""SDP-AE and VB-SDP-AE: all data so far, over shuffled bits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import play
from bandits.policies.shuffle_elimination import ShuffleElimination, TkmsRadius, joint_width
from bandits.privatizers.sums import BitPrivatizer
from bandits.worlds.environment import Bernoulli
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.sampling.rng import SeededRng

BITS = BitPrivatizer(epsilon=1, delta="1e-6")
VB = ShuffleElimination(privatizer=BITS)
CONSTANT = ShuffleElimination(privatizer=BITS, batch=50)


def released(*sums: int | None) -> Released:
    return Released(tuple(None if s is None else ReleasedSum(Fraction(s)) for s in sums))


def test_phases_pull_a_constant_or_doubling_number_of_users() -> None:
    state, steady = VB.init(2, 10**6), CONSTANT.init(2, 10**6)
    for phase in (1, 2, 3):
        assert VB.choose(state) == Pulls((2**phase, 2**phase))
        assert CONSTANT.choose(steady) == Pulls((50, 50))
        state, steady = VB.observe(state, released(1, 1)), CONSTANT.observe(steady, released(9, 9))
        assert VB.pulled(phase) == sum(2**t for t in range(1, phase + 1))
        assert CONSTANT.pulled(phase) == 50 * phase
    assert (VB.name, CONSTANT.name) == ("vb-sdp-ae", "sdp-ae")


def test_means_are_over_all_data_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShuffleElimination, "width", lambda *_: 0.1)
    state = CONSTANT.observe(CONSTANT.init(2, 1000), released(30, 25))
    assert (sum(state.sums), state.active) == (55, (0, 1))
    state = CONSTANT.observe(state, released(20, 25))
    assert set(state.sums) == {Fraction(50)}
    assert (state.active, state.phase) == ((0, 1), 3)
    state = CONSTANT.observe(state, released(0, 50))
    assert state.active == (1,)
    assert CONSTANT.choose(state) == Commit(1)


def test_an_arm_goes_when_it_is_two_widths_below_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShuffleElimination, "width", lambda *_: 0.1)
    state = CONSTANT.init(3, 1000)
    assert CONSTANT.observe(state, released(30, 21, 19)).active == (0, 1)


def test_the_width_is_that_of_the_phase_and_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def width(policy: ShuffleElimination, phase: int, horizon: int) -> float:
        asked.append((phase, horizon))
        return 1.0

    monkeypatch.setattr(ShuffleElimination, "width", width)
    state = CONSTANT.observe(CONSTANT.init(2, 1000), released(30, 25))
    CONSTANT.observe(state, released(30, 25))
    assert asked == [(1, 1000), (2, 1000)]


def test_an_interval_misses_with_the_chance_of_the_theorem() -> None:
    laws = tuple(BITS.noise(2**t) for t in (1, 2, 3))
    assert VB.width(3, 1000) == joint_width(laws, 14, Fraction(4, 1000**4))  # type: ignore[arg-type]  # all binomial
    # Where 4/T^4 is no chance, an interval of one round.
    assert VB.width(1, 1) == joint_width(laws[:1], 2, Fraction(1, 2))  # type: ignore[arg-type]  # all binomial


def test_either_side_of_the_noise_is_covered() -> None:
    few, many = (Binomial(trials=900, probability=p) for p in ("1/9", "8/9"))
    chance = Fraction(1, 1000)
    assert joint_width((few,), 400, chance) == joint_width((many,), 400, chance)


def test_the_papers_width_is_the_papers() -> None:
    paper = ShuffleElimination(privatizer=BITS, batch=50, radius=TkmsRadius())
    variance = float(Fraction(BITS.protocol(50).planned_noise.variance))
    for phase in (1, 7):
        n = 50 * phase
        expected = (2 * math.sqrt(phase * variance) / n + 1 / math.sqrt(n)) * math.sqrt(
            2 * math.log(10**5)
        )
        assert paper.width(phase, 10**5) == pytest.approx(expected, rel=1e-12)
    doubling = ShuffleElimination(privatizer=BITS, radius=TkmsRadius())
    largest = max(float(Fraction(BITS.protocol(2**t).planned_noise.variance)) for t in range(1, 6))
    expected = (2 * math.sqrt(5 * largest) / 62 + 1 / math.sqrt(62)) * math.sqrt(2 * math.log(999))
    assert doubling.width(5, 999) == pytest.approx(expected, rel=1e-12)


def miss(laws: tuple[Binomial, ...], pulls: int, mean: float, width: float) -> float:
    # P(|released mean - mean| > width) for Bernoulli rewards, by convolution.
    total = stats.binom.pmf(np.arange(pulls + 1), pulls, mean)
    center = pulls * mean
    for law in laws:
        n, p = int(law.trials), float(Fraction(law.probability))
        total = np.convolve(total, stats.binom.pmf(np.arange(n + 1), n, p))
        center += n * p
    off = np.abs(np.arange(len(total)) - center) > width * pulls
    return float(total[off].sum())


LAWS = (
    Binomial(trials=200, probability="1/2"),
    Binomial(trials=900, probability="1/9"),
    Binomial(trials=3000, probability="1/50"),
)


@pytest.mark.parametrize("failure", ["1/10", "1e-3", "1e-9"])
@pytest.mark.parametrize("mean", [0.5, 0.1, 1.0])
def test_the_joint_width_covers_and_is_not_much_too_long(mean: float, failure: str) -> None:
    chance = float(Fraction(failure))
    width = joint_width(LAWS, 400, Fraction(failure))
    assert miss(LAWS, 400, mean, width) <= chance
    if mean == 0.5:
        # Chernoff's bound loses most where little is asked of it.
        assert miss(LAWS, 400, mean, (0.8 if chance < 0.01 else 0.6) * width) > chance


def test_a_width_without_the_noise_does_not_cover() -> None:
    short = joint_width((Binomial(trials=1, probability="1/2"),), 400, Fraction(1, 1000))
    assert miss(LAWS, 400, 0.5, short) > 1 / 1000


@pytest.mark.parametrize("policy", [VB, CONSTANT], ids=lambda p: p.name)
def test_a_run_finds_the_best_arm_at_the_promised_price(policy: ShuffleElimination) -> None:
    world, rng = np.random.default_rng(1), SeededRng(1)
    environment = Bernoulli(means=(0.1, 0.9))
    run = play(policy, environment, horizon=50_000, world=world, rng=rng)
    assert run.pulls[1] > 40_000
    assert run.guarantee is not None
    assert run.guarantee.epsilon("1e-6").upper <= 1
    assert run.guarantee.pure().upper == math.inf
    assert run.bits_per_user == max(policy.privatizer.bits(n) for n in policy.sizes(2, 50_000)[:1])


def test_a_missing_sum_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="released"):
        VB.observe(VB.init(2, 100), released(1, None))
    with pytest.raises(InvalidParameter, match="released"):
        VB.observe(VB.init(2, 100), released(1))
