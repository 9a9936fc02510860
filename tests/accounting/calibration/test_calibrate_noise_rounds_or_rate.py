"""Tests of `accounting.calibration.calibrate_noise_rounds_or_rate`: results are recomputed."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp

from accounting import compose, guarantee
from accounting.calibration import calibrate_noise_rounds_or_rate as module
from accounting.calibration.calibrate_continual_sums import (
    CalibratedSum,
    calibrate_sum,
    compare_sums,
)
from accounting.calibration.calibrate_noise_rounds_or_rate import (
    Calibration,
    calibrate,
    least_sigma,
    noise_multiplier,
)
from accounting.calibration.parameter_search import Edge, Unknown, search
from accounting.composition.training_run import Sampling, TrainingRun
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Gaussian
from accounting.descriptions.sampling_schemes import Allocation, FixedSize, Poisson, Shuffled
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.strategy_matrices import Tree
from dpcore import DiscreteGaussian, DiscreteLaplace, InvalidParameter, Relation, Scope
from dpcore.continual_sums import SquareRootSum
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day, effort
from tests.support.accounting.brute_force import Worlds, mass_of
from tests.support.accounting.release_lists import curve
from tests.support.dpcore.mpmath_precision import real
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.refusals import refused

LAWS = (
    *("discrete-gaussian", "discrete-laplace", "skellam", "polya-difference:shape=0.9"),
    *("binomial:probability=1/3", "discrete-gaussian-sum:count=4"),
)


def by_plain_sum(noise: Noise, shift: int, epsilon: str) -> Any:
    """Return delta of one round, the worse of both directions."""
    deviation = math.isqrt(math.ceil(rounded_up(noise.variance)))
    middle, far = math.floor(rounded_up(noise.mean)), 15 * deviation + 2 * shift + 30
    low = middle - far if noise.symmetric else max(middle - far, 0)
    return Worlds(noise=noise, most=shift, low=low, high=middle + far).delta(epsilon)


def rounded_up(moment: Fraction | Enclosure) -> Fraction:
    return Fraction(moment.upper) if isinstance(moment, Enclosure) else moment


def stands(found: Calibration) -> bool:
    """Check both points with a new total at a finer width, and check the grid step."""
    assert isinstance(found.noise, Noise)
    total = compose((curve(found.noise, found.sensitivity), found.rounds))
    kept = total.delta(found.epsilon, "1e-6").upper <= found.delta
    if not isinstance(found.step_less, Noise):
        return kept
    here, there = found.noise.parameters, found.step_less.parameters
    ((name, value),) = here.items() - there.items()
    less = value - 1 if name == "trials" else value * Fraction(999, 1000)
    below = compose((curve(found.step_less, found.sensitivity), found.rounds))
    lower = below.delta(found.epsilon, "1e-6").lower
    breaks = lower is not None and lower > found.delta
    return kept and there[name] == less and breaks == found.least


@by_day(3)
@pytest.mark.parametrize("law", [*LAWS, "poisson"])
def test_calibrated_noise_of_one_round_agrees_with_plain_sums(law: str) -> None:
    found: Any = calibrate(noise=law, epsilon=1, delta="1e-4", sensitivity=2)
    assert found.least
    assert by_plain_sum(found.noise, 2, "1") <= real("1e-4") < by_plain_sum(found.step_less, 2, "1")


def test_a_wrong_result_of_the_search_is_refused() -> None:
    # A search that stops one step early: the result is refused instead of returned.
    short = mutated(
        search, "value=value, found=found, beyond=next_", "value=value, found=other, beyond=next_"
    )
    with pytest.raises(InvalidParameter, match="found"):
        rewired(calibrate, search=short)(noise="skellam", epsilon=1, delta="1e-6", rounds=10)


def test_noise_is_calibrated_under_any_scheme() -> None:
    asked: dict[str, Any] = {"noise": "gaussian", "epsilon": 2, "delta": "1e-6", "rounds": 10}
    by_rate, scheme = calibrate(**asked, rate="1/100"), Poisson(rate="1/100")
    assert by_rate == calibrate(**asked, scheme=scheme)
    assert by_rate.to_json()["rate"] == "1/100"
    asked["rounds"] = 1
    by_rate = calibrate(**asked, rate="1/100")
    fixed = FixedSize(sample=10, population=1000)
    found = calibrate(**asked, scheme=fixed, sensitivity=2)
    # At the same rate and twice the sensitivity, the noise is that of Poisson samples of one unit.
    assert found.to_json()["scheme"] == fixed.text
    ratio = found.edge.value / (2 * by_rate.edge.value)
    assert 1 - 1e-3 < ratio < 1.3
    for noise, enough in ((found.noise, True), (found.step_less, False)):
        one = Description(noise=noise, scheme=fixed, sensitivity=2)  # type: ignore[arg-type]  # one step exists
        assert (compose((one, 1)).delta(2).upper <= Fraction("1e-6")) is enough
    with refused("rate"):
        calibrate(**asked, rate="1/100", scheme=fixed)
    with refused("noise"):
        calibrate(**asked | {"noise": "skellam"}, scheme=Allocation(rounds=10))
    with refused("scheme"):
        calibrate(**asked, scheme=Shuffled(users=9))


@pytest.mark.parametrize(
    ("owner", "broken", "old", "new"),
    [
        (module._Plan, "composed", "compose((one, self.rounds))", "compose((one, 1))"),
        (module, "decide", "total.delta(epsilon, width)", "total.delta(2 * epsilon, width)"),
        (module._Plan, "composed", "self.release, ", "self.release, sensitivity=1, "),
        (Unknown, "riskier", "(1 - self.sign * self.step)", "(1 + self.sign * self.step)"),
        (Unknown, "riskier", "(1 - self.sign * self.step)", "(1 - 10 * self.sign * self.step)"),
    ],
)
def test_a_broken_evaluation_or_grid_is_detected(
    monkeypatch: pytest.MonkeyPatch, owner: Any, broken: str, old: str, new: str
) -> None:
    monkeypatch.setattr(owner, broken, mutated(getattr(owner, broken), old, new))
    try:
        found = module.calibrate(
            noise="discrete-gaussian", epsilon=2, delta="1e-6", rounds=20, sensitivity=3
        )
    except (ArithmeticError, InvalidParameter, NotDerived):
        return
    assert not stands(found)


def bound_of(low: Fraction | None, high: Fraction) -> Bound:
    return Bound(lower=low, upper=high, method="", theorem="")


@pytest.mark.parametrize(("low", "proven"), [("1/9", True), ("1/10", False), (None, False)])
def test_only_a_certified_failure_proves_the_edge(low: str | None, *, proven: bool) -> None:
    kept = bound_of(Fraction(0), Fraction(1, 10))
    beyond = bound_of(None if low is None else Fraction(low), Fraction(1))
    ends: dict[str, Any] = {"value": Fraction(10), "found": kept, "beyond": Fraction(9)}
    assert Edge(**ends, found_beyond=beyond, limit=Fraction(1, 10)).proven is proven


@pytest.mark.parametrize("power", [2, 1, -1, -2])
@pytest.mark.parametrize("place", ["3/7", "1", "41", "12345"])
def test_one_search_finds_every_kind_of_parameter(power: int, place: str) -> None:
    """Search for the point where a bound crosses its limit, for each kind of number."""
    root = Fraction(place)
    whole = root.denominator == 1
    limits: dict[str, Any] = {"least": Fraction(1, 100), "most": 10**6, "closed": True}
    unknown = Unknown(name="numbers", power=power, unit=int(whole), **limits)

    def bound(value: Fraction) -> Bound:
        ratio = value / root if power < 0 else root / value
        at = min(Fraction(1), ratio ** abs(power) / 1000)
        return bound_of(at, at)

    found = search(unknown, bound, epsilon=Fraction(1), delta=Fraction(1, 1000))
    assert found.proven
    assert found.beyond is not None
    safer = found.value - root if power > 0 else root - found.value
    past = found.beyond - root if power > 0 else root - found.beyond
    assert past < 0 <= safer
    step = 1 if whole else max(found.value, found.beyond) / 10**6
    assert abs(found.value - found.beyond) <= step


def test_gaussian_noise_of_a_run_or_a_strategy_needs_a_positive_delta() -> None:
    run = TrainingRun(noise_multiplier=1, batch_size=60, examples=600, epochs=4)
    strategy = MatrixMechanism(strategy=Tree(rounds=4), noise=Gaussian(sigma=1))
    for ask in (partial(noise_multiplier, run), partial(least_sigma, strategy)):
        with refused("delta"):
            ask(epsilon=2, delta=0)


@by_day(2)
@pytest.mark.parametrize("sampling", [Sampling.POISSON, Sampling.FIXED, Sampling.SHUFFLED])
def test_the_noise_multiplier_of_a_training_run_is_calibrated(sampling: Sampling) -> None:
    run = TrainingRun(noise_multiplier=1, batch_size=60, examples=600, epochs=4, sampling=sampling)
    found = noise_multiplier(run, epsilon=2, delta="1e-5")
    assert found.proven is (sampling is Sampling.POISSON)
    assert found.beyond == found.value * Fraction(9999, 10000)


def test_pure_epsilon_of_polya_differences_is_calibrated() -> None:
    found: Any = calibrate(noise="polya-difference:shape=0.9", epsilon=1, rounds=5)
    assert found.least
    # k log(p(0)/p(1)), from the masses directly.
    with mp.workdps(30):
        masses = [mass_of(noise) for noise in (found.noise, found.step_less)]
        kept, broken = (5 * mp.log(mass(0) / mass(1)) for mass in masses)
    assert kept <= 1 < broken


@pytest.mark.nightly
def test_the_noise_of_the_honest_users_meets_the_target() -> None:
    whole = calibrate(noise="skellam", epsilon=1, delta="1e-6", rounds=4)
    part = calibrate(noise="skellam", epsilon=1, delta="1e-6", rounds=4, honest_fraction="9/10")
    sizes = [Fraction(found.noise.parameters["variance"]) for found in (whole, part)]
    assert Fraction("1.108") < sizes[1] / sizes[0] < Fraction("1.114")
    assert part.total().delta(1, "1e-9").upper <= part.delta
    fewer = calibrate(
        noise="discrete-laplace", epsilon=1, rounds=1, honest_fraction="9/10", sensitivity=10
    )
    # Reference: at scale 10 the shares of 9 of 10 users give epsilon 1.17056.
    assert Fraction("11.7") < Fraction(fewer.noise.parameters["scale"]) < Fraction("11.95")
    bits = calibrate(
        noise="binomial:probability=1/2", epsilon=1, delta="1e-6", honest_fraction="9/10"
    )
    assert Fraction(bits.noise.parameters["trials"]) % 10 == 0


@settings(max_examples=effort(2, 12), deadline=None)
@example(law="skellam", epsilon="7", delta="1e-6", rounds=1000, moves=16)
@given(
    law=st.sampled_from(LAWS[: effort(3, len(LAWS))]),
    epsilon=st.sampled_from(["1/10", "1/2", "1", "3", "7"]),
    delta=st.sampled_from(["1/10", "1e-3", "1e-6", "1e-12"]),
    rounds=st.sampled_from([1, 2, 7, 40]),
    moves=st.sampled_from([1, 2, 16]),
)
def test_every_calibrated_noise_meets_its_target(
    law: str, epsilon: str, delta: str, rounds: int, moves: int
) -> None:
    asked: dict[str, Any] = {"noise": law, "rounds": rounds, "sensitivity": moves}
    found, looser = (
        calibrate(epsilon=factor * Fraction(epsilon), delta=factor * Fraction(delta), **asked)
        for factor in (1, 2)
    )
    assert stands(found)
    # A larger target never needs more noise, up to a step and five digits.
    size, less = (max(map(Fraction, each.noise.parameters.values())) for each in (found, looser))
    assert less <= size * Fraction(10012, 10000)


@pytest.mark.parametrize(
    ("noise", "delta", "said"),
    [
        ("skellam", 0, "use a delta > 0"),
        ("discrete-gaussian", 0, "use a delta > 0"),
        ("polya:shape=1/2", "1e-30", "use a larger delta"),
    ],
)
def test_a_target_that_no_noise_meets_is_refused(noise: str, delta: Any, said: str) -> None:
    with pytest.raises(NotDerived, match=said):
        calibrate(noise=noise, epsilon=1, delta=delta)


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("honest_fraction", ["3/2", "1/2"]),
        ("noise", [7, "discrete-gaussian:sigma_squared=4", "polya-difference"]),
        (
            "noise",
            ["polya-difference:shape=1,shape=2", "polya-difference:shape", "skellam:shape=1"],
        ),
    ],
)
def test_bad_input_is_refused_by_name(argument: str, values: list[Any]) -> None:
    asked: dict[str, Any] = {"noise": "discrete-gaussian", "epsilon": 1, "delta": "1e-6"}
    for value in values:
        with refused(argument):
            calibrate(**asked | {argument: value})
    with refused("shape"):
        calibrate(**asked | {"noise": "polya-difference:shape=0"})


def laplace_variance(scale: float) -> float:
    return 1 / (2 * math.sinh(1 / (2 * scale)) ** 2)


def factorised(found: CalibratedSum) -> tuple[float, float]:
    """Return the mean and the largest variance of A C^-1 z, from dense float matrices."""
    setting = found.setting
    assert isinstance(setting, SquareRootSum)
    T, noise = setting.horizon, setting.noise
    if isinstance(noise, DiscreteGaussian):
        each = float(noise.sigma_squared)
    else:
        assert isinstance(noise, DiscreteLaplace)
        each = laplace_variance(float(noise.scale))
    C = sum(c * np.eye(T, k=-k) for k, c in enumerate(setting.moves))
    errors = each * ((np.tril(np.ones((T, T))) @ np.linalg.inv(C)) ** 2).sum(axis=1)
    return float(errors.mean()), float(errors.max())


def near(found: CalibratedSum, mean: float, largest: float, rel: float) -> None:
    for ends, expected in ((found.mean, mean), (found.largest, largest)):
        assert ends.lower <= expected * (1 + 1e-12)
        assert expected * (1 - 1e-12) <= ends.upper
        assert float(ends.upper) == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("horizon", [1, 6, 64, 100])
def test_errors_of_running_sums_equal_those_of_blocks_and_matrices(horizon: int) -> None:
    tree, doubling, root = compare_sums(horizon=horizon, epsilon="1/2")
    levels = math.floor(math.log2(horizon)) + 1
    ones = [t.bit_count() for t in range(1, horizon + 1)]
    each = laplace_variance(2 * levels)
    near(tree, each * sum(ones) / horizon, each * max(ones), 1e-9)
    blocks = [math.floor(math.log2(t)) + 1 for t in range(1, horizon + 1)]
    each = laplace_variance(2)
    near(doubling, each * sum(blocks) / horizon, each * max(blocks), 1e-9)
    near(root, *factorised(root), 0.05)
    assert (tree.behind, root.behind) == (0, 0)
    assert doubling.behind == max(t - 2 ** int(math.log2(t)) for t in range(1, horizon + 1))


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_each_running_sum_meets_its_target_and_one_step_less_does_not(delta: str) -> None:
    for found in compare_sums(horizon=64, epsilon=1, delta=delta):
        assert guarantee(found.setting).epsilon(delta).upper <= 1
        calibration: Any = found.calibration
        assert calibration.sensitivity == found.setting.sensitivity
        assert calibration.found_less.lower > (calibration.delta or calibration.epsilon)


def test_the_range_of_items_and_the_scope_determine_the_noise() -> None:
    items: dict[str, Any] = {"horizon": 8, "epsilon": 1, "low": -1, "high": "1/2", "unit": "1/4"}
    assert calibrate_sum("tree", **items).setting.noise == DiscreteLaplace(scale=24)
    scope = Scope(relation=Relation.ADD_REMOVE)
    less = calibrate_sum("tree", **items, scope=scope)
    assert less.setting.noise == DiscreteLaplace(scale=16)
    near(less, laplace_variance(16) / 16 * 13 / 8, laplace_variance(16) / 16 * 3, 1e-9)
