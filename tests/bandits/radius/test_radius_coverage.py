"""Tests of the coverage of widths and gaps over whole runs, and of upper bounds on tails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeAlias

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bandits.batch import Commit, Released
from bandits.policies.batch_schedule import Schedule
from bandits.policies.successive_elimination import BatchedElimination
from bandits.privatizers.batch_sums import BitPrivatizer, SumPrivatizer, Trust
from bandits.privatizers.privatizer import Privatizer
from bandits.radius import certified_width as radius_exact
from bandits.radius.certified_width import certified_gap, certified_width
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius, Radius, Size, tkms_width
from dpcore import Binomial, DiscreteLaplace, Noise, PolyaDifference, Skellam
from dpcore.analysis import laplace_sums as laplace_sum
from dpcore.numbers.enclosure import Enclosure, precision
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.effort import by_day
from tests.support.dpcore.mutants import rewired

MEANS = (0.02, 0.9)
P = Fraction(1, 5)
RUNS = 600
BATCHES = 2

Errors: TypeAlias = npt.NDArray[np.float64]


def summed(trust: Trust) -> SumPrivatizer:
    return SumPrivatizer(trust=trust, epsilon="1/10", failure="1e-3")


PRIVATIZERS: dict[str, Privatizer] = {
    "central": summed("central"),
    "local": summed("local"),
    "pure": summed("pure"),
    "renyi": summed("renyi"),
    "concentrated": summed("concentrated"),
    "shuffled-pure": summed("shuffled-pure"),
    "binary-shuffle": BitPrivatizer(epsilon="1/10", delta="1e-3"),
}

each_trust = pytest.mark.parametrize("trust", PRIVATIZERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow(Radius):
    """A fraction of the certified width, without a proof."""

    part: float

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        exact = ExactRadius(batches=BATCHES)
        return self.part * exact.width(
            privatizer, pulls, batch=batch, active=active, failure=failure
        )

    def gap(
        self, privatizer: Privatizer, pulls: Size, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        exact = ExactRadius(batches=BATCHES)
        return self.part * exact.gap(privatizer, pulls, batch=batch, active=active, failure=failure)


POLICY_OF = {
    trust: BatchedElimination(
        privatizer=privatizer,
        schedule=Schedule(first=8, growth=2),
        radius=ExactRadius(batches=BATCHES),
        failure_probability=P,
    )
    for trust, privatizer in PRIVATIZERS.items()
}


@cache
def played(trust: str) -> Errors:
    """Errors of released means, of shape (runs, batches, arms); nan if there is none."""
    policy, horizon = POLICY_OF[trust], 10**6
    world, rng = np.random.default_rng(6), SeededRng(600 + list(PRIVATIZERS).index(trust))
    off = np.full((RUNS, BATCHES, len(MEANS)), np.nan)
    for run in off:
        state = policy.init(len(MEANS), horizon)
        for batch in run:
            choice = policy.choose(state)
            if isinstance(choice, Commit):
                break
            sums = []
            for arm, pulls in enumerate(choice.counts):
                steps = int(world.binomial(pulls, MEANS[arm])) * policy.privatizer.precision(pulls)
                sums.append(policy.privatizer.release(steps, pulls, rng))
                batch[arm] = float(sums[-1] / pulls) - MEANS[arm]
            state = policy.observe(state, Released(tuple(sums)))
    return off


def failures(trust: str, radius: Radius, *, of: Literal["width", "gap"]) -> int:
    """The number of runs in which some mean, or some difference of two, exceeds its bound."""
    policy, failed = POLICY_OF[trust], np.zeros(RUNS, dtype=bool)
    for batch in range(1, BATCHES + 1):
        off, pulls = played(trust)[:, batch - 1], policy.schedule.pulls(batch)
        rule = radius.width if of == "width" else radius.gap
        most = rule(policy.privatizer, pulls, batch=batch, active=len(MEANS), failure=P)
        far = np.abs(off if of == "width" else off[:, :1] - off[:, 1:]) > most
        failed |= far.any(axis=1)  # comparisons with nan are False
    return int(failed.sum())


def too_many(failed: int) -> float:
    return float(stats.binomtest(failed, RUNS, float(P), alternative="greater").pvalue)


@by_day(2)
@each_trust
def test_all_means_of_a_run_are_within_their_widths(trust: str) -> None:
    alpha = buy_alpha(f"bandits coverage of widths: {trust}", "1e-9")
    assert too_many(failures(trust, ExactRadius(batches=BATCHES), of="width")) > alpha
    assert too_many(failures(trust, Narrow(part=0.7), of="width")) < alpha


@by_day(2)
@each_trust
def test_all_differences_of_a_run_are_within_their_gaps(trust: str) -> None:
    alpha = buy_alpha(f"bandits coverage of gaps: {trust}", "1e-9")
    assert too_many(failures(trust, ExactRadius(batches=BATCHES), of="gap")) > alpha
    assert too_many(failures(trust, Narrow(part=0.7), of="gap")) < alpha


LAWS: tuple[Noise, ...] = (
    DiscreteLaplace(scale=3),
    Skellam(variance=20),
    PolyaDifference(shape=2, scale=3),
    PolyaDifference(shape=16, scale=3),
    PolyaDifference(shape=5, scale=2),
    Binomial(trials=60, probability="1/9"),
)


def wide(value: Fraction | float) -> Any:
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / exact.denominator


@pytest.mark.parametrize("bits", [10, 60], ids=["by balls", "by enclosures"])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_every_tail_is_that_of_the_law_and_never_too_small(
    law: Noise, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radius_exact, "_TAIL_BITS", bits)
    monkeypatch.setattr(radius_exact, "_tail", radius_exact._tail.__wrapped__)
    for sign in (1,) if law.symmetric else (1, -1):
        for knot in (-40, -7, -1, 0, 1, 9, 30):
            true = law.enclose_sf(knot, 120) if sign > 0 else law.enclose_cdf(-knot - 1, 120)
            found = radius_exact._beyond(law, sign, knot)
            assert found >= true.lower
            assert found - Fraction(true.upper) <= Fraction(true.upper) / 2**9


CUTS = ((16, 3, 20), (40, 10, 5), (200, 2, 90), (16, 3, 70), (16, 3, 2), (16, 1, 40))


def held(tail: Any, draws: int, scale: Fraction | int, least: int) -> bool:
    """Whether the ball of a contour integral contains the tail, computed independently."""
    line = laplace_sum._line(float(draws), Fraction(scale), least)
    with precision(64):
        found = Enclosure.of(tail(Fraction(draws), Fraction(scale), least, *line))
    true = PolyaDifference(shape=draws, scale=scale).enclose_sf(least - 1, 60)
    return found.overlaps(true)


@pytest.mark.parametrize("guard", [-62, -60, -57, -50, -40])
@pytest.mark.parametrize("every", [False, True])
def test_what_a_coarse_contour_leaves_out_is_held(guard: int, every: bool) -> None:
    # With so few points and frequencies, the remainder terms dominate.
    coarse = rewired(laplace_sum._sum, _GUARD=guard)
    if every:
        coarse = rewired(coarse, _last=lambda *_: 10**6)
    assert all(held(coarse, *cut) for cut in CUTS)


@pytest.mark.parametrize(
    ("draws", "scale", "least", "guard", "last"),
    [(16, 3, 20, 0, 4), (40, 10, 5, -30, 2), (16, 3, 20, -60, 10**6), (40, 10, 30, -61, 10**6)],
)
def test_the_remainders_of_a_contour_are_those_of_the_proof(
    draws: int, scale: int, least: int, guard: int, last: int
) -> None:
    tilt, gap = laplace_sum._line(float(draws), Fraction(scale), least)
    cut = rewired(laplace_sum._sum, _GUARD=guard, _last=lambda *_: last)
    with precision(64):
        found = Enclosure.of(cut(Fraction(draws), Fraction(scale), least, tilt, gap))
    with mpmath.workdps(60):
        points = math.ceil((64 + guard) * math.log(2) / gap) + 1
        c, a, beta = wide(tilt), wide(gap), mpmath.exp(-mpmath.mpf(1) / scale)

        def weight(z: Any) -> Any:
            # M(z) e^(-z t)
            ends = (1 - beta * mpmath.exp(z)) * (1 - beta * mpmath.exp(-z))
            return ((1 - beta) ** 2 / ends) ** draws * mpmath.exp(-z * least)

        def far(r: Any) -> Any:
            turned = 1 - mpmath.cos(2 * mpmath.pi * (last + 1) / points)
            return 1 + 2 * r / (1 - r) ** 2 * turned

        decay = mpmath.exp(-a * points)
        most = (weight(c + a) + weight(c - a)) * decay / (1 - decay)
        if last < points // 2:
            both = far(beta * mpmath.exp(c)) * far(beta * mpmath.exp(-c))
            most += weight(c) * both ** (-mpmath.mpf(draws) / 2) / (1 - mpmath.exp(-c))
        radius = (wide(found.upper) - wide(found.lower)) / 2
        assert most <= radius <= most * (1 + mpmath.mpf(2) ** -20)


@pytest.mark.parametrize("width", [0.375, 0.75])
def test_the_bound_in_balls_is_the_formula_from_above(width: float) -> None:
    pulls, steps = 6, 4
    side = radius_exact._side(DiscreteLaplace(scale=3), 1, steps, 12, (-5, 0, 4, 40))
    assert side.knots == (-5, 0, 4, 12)
    with mpmath.workdps(60):
        rooms = [max(wide(Fraction(width) * pulls - at), mpmath.mpf(0)) for at in side.points]
        h = [*(mpmath.exp(-2 * room**2 / pulls) for room in rooms), mpmath.mpf(1)]
        bound = h[0] + sum(
            wide(beyond) * (above - below)
            for beyond, below, above in zip(side.beyond, h, h[1:], strict=False)
        )
        found = wide(radius_exact._failure_upper((side,), pulls, width))
        assert 2 * bound <= found <= 2 * bound * (1 + mpmath.mpf(2) ** -40)


def test_balls_decide_where_floats_look_in_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteLaplace(scale=64)
    given: dict[str, Any] = {"precision": 32, "pulls": 1024, "failure": "1e-3", "threshold": 900}
    right, search = certified_width(law, **given), radius_exact._search
    monkeypatch.setattr(radius_exact, "_search", lambda *a: 0.9 * search(*a))
    monkeypatch.setattr(radius_exact, "_certified", radius_exact._certified.__wrapped__)
    assert certified_width(law, **given) >= 0.99 * right


def test_the_exact_rule_pays_for_wraparound() -> None:
    # If the sum is decoded wrongly with probability 1/20, less of the failure probability is left.
    often, never = (
        SumPrivatizer(trust="pure", epsilon=1, failure=failure) for failure in ("1/20", "1e-9")
    )
    radius = ExactRadius(batches=1)
    given: dict[str, Any] = {"batch": 1, "active": 2, "failure": "2/5"}
    law: dict[str, Any] = {
        "precision": often.precision(64),
        "pulls": 64,
        "threshold": often.protocol(64).threshold,
    }
    noise = often.noise(64)
    width, gap = radius.width(often, 64, **given), radius.gap(often, 64, **given)
    assert width == certified_width(noise, failure="1/5", **law)
    assert gap == certified_gap(noise, failure="2/5", **law)
    assert width > certified_width(noise, failure="1/5", **{**law, "threshold": None})
    assert gap > certified_gap(noise, failure="2/5", **{**law, "threshold": None})
    short = {**given, "failure": "1/100"}
    assert radius.width(often, 64, **short) == radius.gap(often, 64, **short) == float("inf")
    assert radius.width(never, 64, **short) < radius.gap(never, 64, **short) < 1


def test_hoeffdings_width_is_rounded_up() -> None:
    with mpmath.workdps(60):
        for pulls in (1, 7, 200, 10**6):
            for failure in ("1/2", "1/20", "1e-9"):
                found = certified_width(None, precision=1, pulls=pulls, failure=failure)
                width = wide(found)
                assert 2 * mpmath.exp(-2 * pulls * width * width) <= wide(Fraction(failure))


@pytest.mark.parametrize("pulls", [3, 100, 101, 857, 5000])
def test_the_papers_widths_are_rounded_up(pulls: int) -> None:
    given: dict[str, Any] = {"batch": 3, "active": 5, "failure": "1/10"}
    private = SumPrivatizer(trust="central", epsilon="1/2", failure="1e-6")
    with mpmath.workdps(60):
        log, root, odds = mpmath.log, mpmath.sqrt, mpmath.mpf(5 * 9 * 10)
        tail = log(2 * odds)
        dp_se = root(log(8 * odds) / (2 * pulls)) + 2 * log(4 * odds) / pulls
        paper = root(log(4 * odds) / (2 * pulls)) + 2 * (root(2 * tail) + tail) / pulls
        tkms = (12 / mpmath.mpf(pulls) + 1 / root(pulls)) * root(2 * log(999))
        for exact, found in (
            (dp_se, DpSeRadius().width(private, pulls, **given)),
            (paper, PaperRadius().width(private, pulls, **given)),
            (tkms, tkms_width(batches=4, pulls=pulls, sigma=Fraction(3), horizon=999)),
        ):
            assert exact <= wide(found) <= exact * (1 + mpmath.mpf(2) ** -51)
