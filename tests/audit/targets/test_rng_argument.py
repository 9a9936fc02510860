r"""Tests of the target argument ``rng``: ``Rng`` gets a SeededRng, any other a Generator."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit
import dpcore
from audit.replay.replay_both import replay
from audit.targets.target import Scalar, Vectorised
from audit.targets.target_syntax import as_target
from dpcore import DiscreteLaplace, Rng
from tests.day_and_nightly import by_day
from tests.support.audit.command import Shell

NOISE = DiscreteLaplace(scale=1)


def one(value: int, rng: Rng) -> int:
    return value + NOISE.sample(rng=rng)


def qualified(value: int, rng: dpcore.SeededRng) -> int:
    return value + NOISE.sample(rng=rng)


def many(value: int, n: int, rng: Rng) -> Any:
    return value + NOISE.sample(n, rng=rng)


def seed_ignored(value: int, rng: Rng) -> int:
    del rng
    return value + NOISE.sample()


def of_numpy(value: int, rng: np.random.Generator) -> Any:
    assert isinstance(rng, np.random.Generator)
    return value + rng.laplace()


def unwritten(value: int, rng) -> Any:  # type: ignore[no-untyped-def]  # that is what is tested
    assert isinstance(rng, np.random.Generator)
    return value + rng.laplace()


@pytest.mark.parametrize("function", [one, qualified, many, seed_ignored])
def test_a_target_annotated_with_rng_gets_a_seeded_rng(function: Any) -> None:
    target = as_target("f", function)
    assert isinstance(target, Scalar | Vectorised)
    assert target.ours
    first, again = (
        audit.audit(function, "epsilon=1", pair=(0, 1), runs=400, seed=7) for _ in range(2)
    )
    assert first.error is None
    kept = function is not seed_ignored
    assert first.repeatable is (first.to_json() == again.to_json()) is kept


@pytest.mark.parametrize("function", [of_numpy, unwritten, lambda value, rng: rng.laplace()])
def test_a_target_without_the_annotation_gets_a_numpy_generator(function: Any) -> None:
    target = as_target("f", function)
    assert isinstance(target, Scalar)
    assert not target.ours
    assert audit.audit(function, "epsilon=1", pair=(0, 1), runs=400, seed=7).error is None


@by_day(1)
@pytest.mark.parametrize("function", [one, many])
def test_replay_passes_the_annotated_generator(function: Any) -> None:
    report = replay(function, (0, 1), sensitivity=1, strict=True, changes=40)
    assert report.verdict == "nothing_found"
    assert not [found for found in report.findings if found.severity != "note"]
    assert replay(function, (0, 3), sensitivity=1, changes=5).verdict == "refuted"


def test_the_command_passes_the_annotated_generator(audit: Shell, tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(
        textwrap.dedent("""
        from dpcore import DiscreteLaplace, Rng

        def noisy(value, n, rng: Rng):
            return value + DiscreteLaplace(scale="1/3").sample(n, rng=rng)
        """)
    )
    words = ("ours.py:noisy", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 2000, "--seed", 7)
    answers = [audit(*words, "--json") for _ in range(2)]
    assert answers[0].code == 1
    assert answers[0].json == answers[1].json
