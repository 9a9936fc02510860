"""Tests of linear phased elimination: designs, pulls, eliminations and coverage of widths."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy import optimize

from bandits.actions import Actions, LinearModel
from bandits.batch import Ask, Plays, Released
from bandits.policies import g_optimal_design
from bandits.policies.g_optimal_design import Design, _certified, most_support, near_optimal_design
from bandits.policies.linear_phased_elimination import (
    AverageSizes,
    Clients,
    Phase,
    PhasedElimination,
    PhasedState,
    _heavy,
    clients_needed,
    exact_widths,
    paper_staying,
)
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages, Calibrated, LinearTrust
from bandits.worlds.linear import LinearWorld, signs_instance, sphere_instance
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.bandits.worlds import played
from tests.support.dpcore.mutants import mutated

TRUSTS: tuple[LinearTrust, ...] = ("none", "central", "local", "shuffle")
HORIZON = 20_000


def policy(
    world: LinearWorld,
    trust: LinearTrust = "none",
    clients: Clients = "growing",
    calibration: Calibrated = "exact",
) -> PhasedElimination:
    privatizer = AveragePrivatizer(
        trust=trust, epsilon=10, delta="1/4", bound=world.model.bound, calibration=calibration
    )
    return PhasedElimination(model=world.model, privatizer=privatizer, clients=clients)


def test_a_phase_plays_a_design_for_2_to_the_l_rounds() -> None:
    world = sphere_instance(1, 40, dimension=4)
    dpe = policy(world)
    state = dpe.init(40, HORIZON)
    for phase in range(1, 9):
        choice = dpe.choose(replace(state, phase=phase))
        assert isinstance(choice, Plays)
        (ask,) = choice.asks
        assert ask.times is not None
        assert 2**phase <= ask.rounds <= 2**phase + len(ask.actions)
        assert len(ask.actions) <= most_support(4)
        # ceil(2^(0.8 l)), computed in floats rounded to nine decimals.
        assert ask.users == math.ceil(round(2 ** (0.8 * phase), 9))


def test_the_number_of_clients_for_a_horizon_is_stated() -> None:
    """The design page states 88,437 clients for a million rounds and 812,649 for ten million."""
    world = sphere_instance(1, 30)
    dpe = policy(world)
    sums = {10**6: 88_437, 10**7: 812_649}
    for horizon, clients in sums.items():
        assert clients_needed(dpe, horizon) == clients
    enough, few = replace(dpe, population=88_437), replace(dpe, population=88_436)
    assert enough.init(30, 10**6).phase == 1
    for refused in (few.init, few.sizes):
        with pytest.raises(
            InvalidParameter, match=r"users = 88436: is too small: .* each client is used once"
        ):
            refused(30, 10**6)


def test_sizes_are_exactly_those_of_possible_releases() -> None:
    sizes = policy(sphere_instance(1, 30, dimension=3)).sizes(30, HORIZON)
    assert isinstance(sizes, AverageSizes)
    assert Averages(users=2, coordinates=1) in sizes
    assert Averages(users=2, coordinates=most_support(3)) in sizes
    assert Averages(users=2, coordinates=most_support(3) + 1) not in sizes
    assert Averages(users=10**9, coordinates=1) not in sizes
    assert 2 not in sizes


def run_of(world: LinearWorld, trust: LinearTrust, clients: Clients = "growing") -> list[int]:
    found = played(policy(world, trust, clients), world, 2000)
    assert sum(found.pulls) == 2000
    return [arm for arm, count in enumerate(found.pulls) if count]


def linear(points: list[list[float]], theta: tuple[float, ...]) -> LinearWorld:
    model = LinearModel(actions=Actions(np.array(points)), deviation="0.1")
    return LinearWorld(of=model, theta=theta)


@pytest.mark.parametrize("clients", ["growing", "fixed", "one-a-round"])
@pytest.mark.parametrize("trust", TRUSTS)
def test_degenerate_sets_are_played(trust: LinearTrust, clients: Clients) -> None:
    assert run_of(linear([[0.5, 0.5]], (0.6, 0.0)), trust, clients) == [0]  # k = 1
    run_of(linear([[1.0], [-0.5], [0.2]], (0.9,)), trust, clients)  # d = 1
    run_of(linear([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], (0.9, 0.0)), trust, clients)  # duplicates
    ray = [[0.6, 0.8, 0.0], [-0.6, -0.8, 0.0], [0.3, 0.4, 0.0]]
    run_of(linear(ray, (0.9, 0.0, 0.3)), trust, clients)  # of rank 1 in three dimensions
    assert run_of(linear([[0.0, 0.0], [0.0, 0.0]], (0.9, 0.0)), trust, clients) == [0]  # all 0


def test_a_release_that_lacks_an_action_is_refused() -> None:
    dpe = policy(linear([[1.0, 0.0], [0.0, 1.0]], (0.9, 0.0)))
    with pytest.raises(InvalidParameter, match="released"):
        dpe.observe(dpe.init(2, 100), Released((None, None)))


def errors_and_widths(
    phase: Phase, world: LinearWorld, privatizer: AveragePrivatizer, runs: int, seed: int
) -> tuple[Floats, Floats]:
    """Errors of estimated differences in each run, and their widths; pairs with action 0."""
    points = world.model.actions.points
    coins, rng = np.random.default_rng(seed), SeededRng(seed)
    asks: list[Ask]
    if phase.apart:
        asks = [Ask(n, (a,)) for a, n in zip(phase.design.support, phase.times, strict=True)]
    else:
        asks = [Ask(phase.users, phase.design.support, phase.times)]
    found = []
    for _ in range(runs):
        averages: list[float] = []
        for ask in asks:
            size = privatizer.size_of(ask)
            encoded = world.encoded_sums(ask, privatizer.encoding(size), coins)
            released = privatizer.release_sums(encoded, size, rng)
            averages += [float(total) / ask.users for total in released]
        estimate = phase.weights.T @ np.array(averages)
        found.append(points @ (estimate - np.array(world.theta)))
    off = np.array(found)
    return off[:, :1] - off, exact_widths(phase, points[:1], points)[0]


EXACT = [(trust, "exact") for trust in TRUSTS]
CASES = [
    (trust, how, clients, signs, number)
    for trust, how in (*EXACT, ("central", "pure"), ("local", "pure"))
    for clients, signs, number in (
        ("growing", False, 3),
        ("growing", False, 7),
        ("one-a-round", True, 4),
    )
]


@by_day(2)
@pytest.mark.parametrize(("trust", "how", "clients", "signs", "number"), CASES)
def test_exact_widths_cover_the_errors(
    trust: LinearTrust, how: Calibrated, clients: Clients, signs: bool, number: int
) -> None:
    """At failure probability 1/12 errors are no more frequent, but a sixth of the width fails."""
    make = signs_instance if signs else sphere_instance
    world, runs = make(4, 12, dimension=3), 400
    dpe = policy(world, trust, clients, how)
    phase = dpe.played(PhasedState(active=tuple(range(12)), phase=number, horizon=HORIZON))
    loose = replace(phase, horizon=1)
    # k T = 12: a difference fails with probability at most 1/12 on each side.
    errors, widths = errors_and_widths(loose, world, dpe.privatizer, runs, 7)
    missed = (errors[:, 1:] > widths[1:]).mean(axis=0)
    bought = f"coverage of linear widths: {trust}, {how}, {clients}, phase {number}"
    alpha = buy_alpha(bought, "1e-9")
    # Hoeffding: the observed rate exceeds 1/12 + slack with probability at most alpha.
    slack = math.sqrt(math.log(12 / alpha) / (2 * runs))
    assert missed.max() <= 1 / 12 + slack
    narrower = (errors[:, 1:] > widths[1:] / 6).mean(axis=0)
    assert narrower.max() > 1 / 12 + slack / 2


def test_the_width_of_a_difference_follows_from_its_variance() -> None:
    """Without clipping: q sqrt(v^T M v), with M as on the design page, term by term."""
    world = signs_instance(2, 15, dimension=4)
    dpe = policy(world, "central", "one-a-round")
    phase = dpe.played(PhasedState(active=tuple(range(15)), phase=3, horizon=HORIZON))
    points = world.model.actions.points
    support, times = points[list(phase.design.support)], np.array(phase.times)
    inverse = np.linalg.inv((support * times[:, None]).T @ support)
    added = phase.noise + phase.rounding
    inner = (support * (times + times**2 * added)[:, None]).T @ support
    matrix = inverse @ inner @ inverse
    v = points[3] - points[8]
    q = math.sqrt(2 * math.log(15 * HORIZON))
    width = exact_widths(phase, points[3:4], points[8:9])[0, 0]
    assert width == pytest.approx(q * math.sqrt(v @ matrix @ v), rel=1e-5)


@pytest.mark.parametrize("scale", [1e-9, 0.01, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("chance", [0.3, 1e-4, 1e-12])
def test_the_width_for_heavy_tails_is_the_least_proven_one(scale: float, chance: float) -> None:
    """The least w with inf_t e^(-t w) (1 - c^2 t^2)^(-v/2c^2) <= chance, by a search over t."""
    v, least = 0.7, math.log(1 / chance)
    found = float(_heavy(np.array([[v]]), np.array([[scale]]), least)[0, 0])
    c = max(scale, 1e-6 * math.sqrt(v))

    def bound(u: float) -> float:
        return (least - v / (2 * c * c) * math.log1p(-u * u)) * c / u

    if scale < 1e-6:  # the Gaussian limit
        assert found == pytest.approx(math.sqrt(2 * v * least), rel=1e-4)
        return
    best = optimize.minimize_scalar(bound, bounds=(1e-6, 1 - 1e-12), method="bounded").fun
    assert found == pytest.approx(best, rel=1e-4)
    assert found > math.sqrt(2 * v * least)


def test_a_subgaussian_width_of_laplace_noise_would_be_too_small() -> None:
    """A mutant: a Laplace number exceeds the sub-Gaussian width too often."""
    v, c, chance = 2.0, 1.0, 1e-6  # one Laplace number of scale 1
    missed = [0.5 * math.exp(-w) for w in (
        float(_heavy(np.array([[v]]), np.array([[c]]), math.log(1 / chance))[0, 0]),
        math.sqrt(2 * v * math.log(1 / chance)),
    )]  # fmt: skip
    assert missed[0] <= chance < missed[1]


def test_the_papers_width_is_equation_3() -> None:
    world = sphere_instance(2, 25, dimension=5)
    dpe = policy(world, "central")
    phase = dpe.played(PhasedState(active=tuple(range(25)), phase=6, horizon=HORIZON))
    n, h, d = phase.users, 2**6, 5
    size = Averages(users=n, coordinates=len(phase.times))
    private = math.sqrt(float(dpe.privatizer.proxy(size)))
    width = math.sqrt(2 * d / (n * h)) + 0.1 / math.sqrt(n)
    width += 2 * private * math.sqrt(most_support(d) * d)
    width *= math.sqrt(2 * math.log(25 * HORIZON))
    assert shown_width(phase) == pytest.approx(width, rel=1e-6)


def shown_width(phase: Phase) -> float:
    """W, from the gap at which the second of two actions is dropped."""
    only = replace(phase, active=(0, 1))
    points = phase.model.actions.points
    support, v = points[list(phase.design.support)], points[0] - points[1]
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        stays = 1 in paper_staying(only, support @ (v * middle / (v @ v)))
        low, high = (middle, high) if stays else (low, middle)
    return low / 2


@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_papers_width_with_one_client_per_round_is_equation_54(trust: LinearTrust) -> None:
    """Table 4: 2 d sigma sqrt(s)/h with central noise, 2 d sigma sqrt(2 s/h) with local noise."""
    world = signs_instance(2, 25, dimension=5)
    pe = policy(world, trust, "one-a-round")
    phase = pe.played(PhasedState(active=tuple(range(25)), phase=4, horizon=HORIZON))
    one = math.sqrt(float(pe.privatizer.proxy(Averages(users=1, coordinates=1))))
    s, h, d = len(phase.times), pe.h(4), 5
    private = 2 * d * one * (math.sqrt(2 * s / h) if trust == "local" else math.sqrt(s) / h)
    width = (math.sqrt(2 * d / h) + private) * math.sqrt(2 * math.log(25 * HORIZON))
    assert shown_width(phase) == pytest.approx(width, rel=1e-6)


def on_sphere(seed: int, count: int, dimension: int) -> Actions:
    drawn = np.random.default_rng(seed).standard_normal((count, dimension))
    return Actions(drawn / np.sqrt((drawn * drawn).sum(axis=1))[:, None])


def exact_value(held: Floats, weights: Floats) -> Fraction:
    """max x^T V^-1 x, by exact rational elimination."""
    rows, pi = (
        fmpq_mat(len(each), len(each.T), [fmpq(*x.as_integer_ratio()) for x in each.ravel()])
        for each in (held, np.diag(weights))
    )
    values = rows * (rows.transpose() * pi * rows).inv() * rows.transpose()
    return max(Fraction(int(values[i, i].p), int(values[i, i].q)) for i in range(len(held)))


def spread(actions: Actions, design: Design) -> tuple[Floats, Floats]:
    held = actions.points @ design.basis
    weights = np.zeros(actions.count)
    weights[list(design.support)] = design.weights
    return held, weights


SETS = [(3, 1), (1, 1), (4, 2), (9, 3), (30, 4), (20, 20), (60, 6)]


@pytest.mark.parametrize(("count", "dimension"), SETS)
def test_the_value_of_a_design_is_proven_and_at_most_twice_the_rank(
    count: int, dimension: int
) -> None:
    actions = on_sphere(count, count, dimension)
    design = near_optimal_design(actions, tuple(range(count)))
    truth = exact_value(*spread(actions, design))
    rank = design.rank
    assert rank == min(count, dimension)
    assert Fraction(design.value) >= truth
    assert design.value <= 2 * rank
    assert design.value <= float(truth) * (1 + 1e-9)
    # Kiefer and Wolfowitz: no design has a value below the rank.
    assert truth >= Fraction(rank) * (1 - Fraction(1, 10**9))
    assert len(design.support) <= most_support(rank)
    assert math.fsum(design.weights.tolist()) == pytest.approx(1, abs=1e-12)
    assert (design.weights > 0).all()


def test_actions_that_do_not_span_have_a_design_in_their_span() -> None:
    plane = (
        on_sphere(1, 40, 3).points
        @ np.linalg.qr(np.random.default_rng(2).standard_normal((8, 3)))[0].T
    )
    actions = Actions(plane)
    design = near_optimal_design(actions, tuple(range(40)))
    assert design.rank == 3
    assert design.value <= 6
    # The basis spans all actions.
    assert np.abs(plane - plane @ design.basis @ design.basis.T).max() < 1e-12


@pytest.mark.parametrize("thin", [1e-3, 1e-5, 1e-7, 3e-9])
def test_nearly_collinear_actions_have_a_design(thin: float) -> None:
    actions = Actions(np.array([[1, 0], [0.9, thin], [0.5, 0], [0.7, -thin / 2]]))
    design = near_optimal_design(actions, (0, 1, 2, 3))
    assert design.rank == 2
    assert exact_value(*spread(actions, design)) <= Fraction(design.value) <= 4


def supports(seed: int, last_bits: int) -> tuple[int, ...]:
    actions = on_sphere(seed, 300, 8)
    bits = np.random.default_rng(last_bits).uniform(-2e-16, 2e-16, actions.points.shape)
    moved = Actions(actions.points * (1 + bits))
    return near_optimal_design(moved, tuple(range(300))).support


def test_rounding_of_sums_does_not_affect_the_design(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors sum in different orders, and actions of equal length nearly tie; the design must
    not depend on the order.
    """
    for seed in range(5):
        assert len({supports(seed, last_bits) for last_bits in range(5)}) == 1
    monkeypatch.setattr(g_optimal_design, "_ALIKE", 0.0)
    assert len({supports(0, last_bits) for last_bits in range(5)}) > 1


def test_a_design_without_a_proven_value_is_never_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lopsided(held: Floats) -> Floats:
        weights = np.full(len(held), 1e-3 / (len(held) - 1))
        weights[0] = 1 - 1e-3
        return weights

    monkeypatch.setattr(g_optimal_design, "_weights", lopsided)
    with pytest.raises(DpcoreError, match="twice the rank"):
        near_optimal_design(on_sphere(1, 12, 3), tuple(range(12)))


def test_a_wrong_inverse_still_gives_a_valid_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is checked by the residual; without this check a wrong inverse would pass."""
    real = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda matrix: 0.9 * real(matrix))
    bare = mutated(_certified, "values += far / (1 - far) * norm * lengths", "pass")
    for seed in range(5):
        held = np.random.default_rng(seed).standard_normal((9, 3))
        weights = np.full(9, 1 / 9)
        truth = exact_value(held, weights)
        assert Fraction(_certified(held, weights)) >= truth
        assert Fraction(bare(held, weights)) < truth


def test_actions_of_very_different_lengths_get_a_valid_bound_or_none() -> None:
    found = []
    for seed in range(8):
        held = np.random.default_rng(seed).standard_normal((6, 4))
        held *= np.array([1.0, 1e-2, 1e-4, 10.0 ** -(2 * seed + 4)])
        weights = np.full(6, 1 / 6)
        value = _certified(held, weights)
        found.append(math.isfinite(value))
        assert value == math.inf or Fraction(value) >= exact_value(held, weights)
    assert found[0]
    assert not found[-1]


def test_equal_actions_have_equal_hashes() -> None:
    one, other = (Actions(np.array([[1.0, zero]])) for zero in (0.0, -0.0))
    assert one == other
    assert hash(one) == hash(other)
