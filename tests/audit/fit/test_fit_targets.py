"""Tests of fit reports: every form of sampler, samplers that fail, and reproducible output."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from audit.fit.fit import fit
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.sampling.rng import SeededRng
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.refusals import refused

ALPHA = buy_alpha("fit: correct samplers of every form", "1e-9") / 20
TEN = DiscreteLaplace(scale=10)
TAPE = SeededRng(11)


def test_a_seed_repeats_the_report() -> None:
    first, again = (fit(TEN, TEN, runs=3000, seed=5) for _ in range(2))
    assert first.to_text() == again.to_text()
    assert first.to_text() != fit(TEN, TEN, runs=3000, seed=6).to_text()


def test_every_form_of_a_sampler() -> None:
    coin = Binomial(trials=1, probability="1/2")
    forms: list[Any] = [
        lambda n, rng: rng.integers(0, 2, n),
        lambda size, generator: generator.integers(0, 2, size, dtype=np.uint64),
        lambda rng: int(rng.integers(0, 2)),
        lambda: coin.sample(rng=TAPE),
        lambda n, rng: [int(x) for x in rng.integers(0, 2, n)],
        coin,
        {0: "1/2", 1: "1/2"},
        stats.bernoulli(0.5),
    ]
    for form in forms:
        report = fit(form, coin, runs=2000, alpha=ALPHA, seed=2)
        assert (report.verdict, report.runs) == ("not_refuted", 2000)
        wrong = fit(form, Binomial(trials=1, probability="1/3"), runs=2000, alpha=ALPHA, seed=2)
        assert wrong.verdict == "refuted"


def raises(n: int, rng: Any) -> Any:
    raise KeyError("age")


def too_slow(n: int, rng: Any) -> Any:
    while True:
        pass


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        (raises, "raised KeyError: 'age'"),
        (too_slow, "no answer within 0.2 s"),
        (lambda n, rng: None, "returned nothing"),
        (lambda n, rng: np.zeros((n, 2), dtype=int), "shape (50, 2) instead of (50,)"),
        (lambda n, rng: np.zeros(n - 1, dtype=int), "shape (49,)"),
        (lambda n, rng: np.full(n, math.nan), "float64 values such as nan"),
        (lambda n, rng: np.ones(n, dtype=bool), "bool values"),
        (lambda n, rng: ["a"] * n, "integers are required"),
        (lambda n, rng: np.array([True] * n, dtype=object), "returned True"),
        (lambda n, rng: [[1], [1, 2]], "did not return an array of integers"),
    ],
)
def test_a_target_that_fails_is_named_and_never_kept(sampler: Any, reason: str) -> None:
    report = fit(sampler, TEN, runs=50, timeout=0.2)
    assert report.verdict is None
    assert report.exit_code == 3
    assert report.error is not None
    assert reason in str(report.error)
    assert report.to_json()["p_value"] is None


def test_what_was_drawn_before_a_failure_is_kept() -> None:
    calls = itertools.count()

    def once() -> int:
        if next(calls) == 3000:
            raise ValueError("dry")
        return TEN.sample(rng=TAPE)

    report = fit(once, TEN, runs=5000)
    assert report.verdict is None
    assert report.runs == 2048
    assert report.p_value is not None
    assert report.warnings[0].startswith("ended before its planned draws")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("alpha", {"alpha": "1e-301"}),
        ("sampler", {"sampler": 3}),
        ("sampler", {"sampler": lambda a, b, c: None}),
        ("sampler", {"sampler": {0: "1/2"}}),
        ("sampler", {"sampler": {0.5: 1}}),
        ("noise", {"noise": "discrete-laplace:scale=1"}),
        ("scale", {"noise": DiscreteLaplace(scale=10**20)}),
    ],
)
def test_wrong_arguments_are_refused_by_name(name: str, given: dict[str, Any]) -> None:
    with refused(name):
        fit(**{"sampler": TEN, "noise": TEN, **given})
