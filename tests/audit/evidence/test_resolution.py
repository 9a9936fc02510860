"""The resolution: what it says would be seen is seen, and what it calls hopeless is."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv

from audit.claims.claim import Claim
from audit.evidence.anytime import watch
from audit.evidence.event import Tally
from audit.evidence.family import View, watch_views, weigh, weigh_views
from audit.evidence.fixed import WEIGHTS, gather, resolution
from audit.outputs.reading import read
from audit.outputs.worlds import draw_worlds
from tests.effort import by_day
from tests.purse import purse

ALPHA = Fraction(1, 20)
AUDITS = 40


def laplace(size: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Discrete Laplace noise as a difference of geometrics."""
    p = -math.expm1(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


Rest = Callable[[np.ndarray, np.random.Generator], np.ndarray]
RESTS: dict[str, tuple[Rest, Any]] = {
    "nothing else": (lambda worlds, _: np.zeros(len(worlds)), 77),
    "the same noise in both worlds": (lambda worlds, rng: laplace(len(worlds), 5, rng), 77),
    "noise at the claim": (lambda worlds, rng: worlds + laplace(len(worlds), 1, rng), 77),
    "between the values": (lambda worlds, rng: 2 * laplace(len(worlds), 5, rng), 3),
    "continuous": (lambda worlds, rng: rng.laplace(0, 5, len(worlds)), 0.25),
    "many values": (lambda worlds, rng: laplace(len(worlds), 500, rng), 10**6),
}


def revealing(eta: float, rest: str, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and worlds; in world B one value comes with this probability, in A never."""
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    draw, shown = RESTS[rest]
    return np.where(worlds & (rng.random(runs) < eta), shown, draw(worlds, rng)), worlds


def seen(eta: float, rest: str, runs: int, claim: Claim, *, anytime: bool = False) -> int:
    """How many of the audits refute."""
    count = 0
    for seed in range(AUDITS):
        outputs, worlds = revealing(eta, rest, runs, seed)
        if anytime:
            state = watch(*claim.exact).update(outputs, worlds)
            count += state.rejected_at(ALPHA) is not None
        else:
            evidence = gather(outputs, worlds, seed=seed)
            count += evidence.p_value(*claim.exact, spend=ALPHA / 50) <= ALPHA
    return count


def by_luck_alone(runs: int) -> float:
    """The mutant: a perfect score must be long enough, and learning takes no runs (epsilon = 1)."""
    least = math.ceil(math.log(1 / (WEIGHTS[-1] * 0.05)) / math.log1p(math.exp(-1)))
    return float(betaincinv(least, runs // 2 - least + 1, 0.95))


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize("rest", RESTS)
def test_what_it_says_is_seen(rest: str) -> None:
    alpha = purse.buy(f"resolution is true: {rest}", "1e-9")
    claim = Claim(epsilon=1)
    outputs, worlds = revealing(0.1, rest, 1500, 0)
    eta = weigh_views([View(outputs=outputs, worlds=worlds)], claim, ALPHA, seed=0).resolution
    watched = watch_views(claim).update(0, [outputs], worlds)
    anytime_eta = weigh(watched, ALPHA).resolution
    for anytime, mass in ((False, eta), (True, anytime_eta)):
        hits = seen(mass, rest, 1500, claim, anytime=anytime)
        assert stats.binom.cdf(hits, AUDITS, 0.95) > alpha / 2
    mutant = seen(by_luck_alone(1500), rest, 1500, claim)
    assert stats.binom.cdf(mutant, AUDITS, 0.95) < alpha / 2


def test_delta_hides_what_it_allows() -> None:
    alpha = purse.buy("resolution is true: delta", "1e-9")
    claim = Claim(epsilon=1, delta="1/100")
    eta = resolution(1500, 1, ALPHA, "1/100")
    hits = seen(eta, "nothing else", 1500, claim)
    assert stats.binom.cdf(hits, AUDITS, 0.95) > alpha
    # The mutant forgets delta, and is below what delta itself explains.
    mutant = seen(resolution(1500, 1), "nothing else", 1500, Claim(epsilon=1, delta="1/10"))
    assert stats.binom.cdf(mutant, AUDITS, 0.95) < alpha
    assert resolution(10**7, 1, ALPHA, "1/100") > 0.01


def test_it_follows_its_formula_without_delta() -> None:
    for runs, epsilon in ((2000, 1.0), (20_000, 3.0), (10**6, 0.1)):
        q = 1 / (1 + math.exp(-epsilon))
        learned = next(k for k in range(1, 10**4) if 0.003 ** (1 / k) > q)
        bar = stats.norm.isf(WEIGHTS[3] * 0.05) / math.sqrt(5 / 9)
        enough = next(k for k in range(1, 10**4) if stats.norm.isf(q**k) >= bar)
        early = 4 * runs // 9
        eta = resolution(runs, repr(epsilon))
        sure = (
            stats.binom.sf(learned - 1, early, eta / 2),
            stats.binom.sf(enough - 1, runs - early, eta / 2),
        )
        assert min(sure) == pytest.approx(0.975)


def test_a_crowd_must_be_learned_first() -> None:
    assert resolution(20_000, 1, crowd=200) > 2 * resolution(20_000, 1)
    many = Tally.empty().add(read(np.arange(5000.0)), np.arange(5000) % 2 == 0)
    few = Tally.empty().add(read(np.arange(5000.0) % 7), np.arange(5000) % 2 == 0)
    assert (many.crowd, few.crowd) == (-(-5000 // (8 + math.isqrt(80_000))), 1)


@pytest.mark.parametrize("epsilon", [0, 1, 3])
def test_too_few_runs_are_said_to_be(epsilon: Any) -> None:
    claim = Claim(epsilon=epsilon)
    found = [resolution(runs, epsilon) for runs in range(20, 400)]
    assert found[0] == math.inf
    assert found == sorted(found, reverse=True)
    always = 20 + found.index(1.0)
    assert seen(1.0, "nothing else", always, claim) >= 0.95 * AUDITS
    assert resolution(10**6, 1, Fraction(1, 10**400)) == math.inf
