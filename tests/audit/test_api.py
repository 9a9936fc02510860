"""Tests of ``import audit``: its public names, and ``audit.audit`` against the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit
from audit.claims.claim import Claim
from dpcore import DiscreteLaplace
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.audit.command import ROOT, Shell, hearing_ctrl_c
from tests.support.dpcore.refusals import refused

ALPHA = buy_alpha("audit.audit: audits of true claims", "1e-9")


def loaded(code: str) -> set[str]:
    """The packages that this code loads, in a process of its own."""
    code = f"import sys\n{code}\nprint(*(name.split('.')[0] for name in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(run.stdout.split())


def test_importing_audit_loads_nothing_heavy_and_one_job_no_joblib() -> None:
    heavy = {"numpy", "scipy", "accounting", "flint", "typer", "pytest"}
    assert loaded("import audit") & heavy == set()
    after = loaded("import audit; audit.audit('count', runs=100)")
    assert after & heavy
    assert after & {"joblib", "cloudpickle"} == set()


def test_the_public_names_are_exactly_those_listed() -> None:
    assert {name for name in audit.__all__ if not hasattr(audit, name)} == set()
    assert set(audit.__all__) <= set(dir(audit))
    with pytest.raises(AttributeError, match="'audit' has no attribute 'nothing'"):
        _ = audit.nothing


def count(dataset: int, n: int, rng: np.random.Generator) -> Any:
    return dataset + rng.geometric(0.5, n) - rng.geometric(0.5, n)


SOURCE = """
def count(dataset, n, rng):
    return dataset + rng.geometric(0.5, n) - rng.geometric(0.5, n)
"""


@by_day(1)
@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("-n", 3000), {"runs": 3000}),
        (
            ("--sequential", "--max-n", 3000, "--feature", "sign", "--baseline", "dkw"),
            {"sequential": True, "runs": 3000, "features": ["sign"], "baselines": ["dkw"]},
        ),
        (
            ("-n", 3000, "--layers", "replay,sample", "--alpha", "1/3"),
            {"runs": 3000, "layers": ["sample", "replay"], "confidence": "2/3"},
        ),
    ],
    ids=["plain", "sequential", "layers"],
)
def test_the_json_in_python_is_that_of_the_command(
    shell: Shell, here: Path, words: tuple[object, ...], asked: dict[str, Any]
) -> None:
    (here / "t.py").write_text(SOURCE)
    answer = shell("t.py:count", "--claim", "epsilon=1/2", "--pair", 0, 1, "--seed", 7, *words,
                   "--json")  # fmt: skip
    report = audit.audit("t.py:count", "epsilon=1/2", pair=(0, 1), seed=7, **asked)
    assert json.loads(report.to_text()) == answer.json
    assert report.refuted is (answer.code == 1)
    own = json.loads(audit.audit(count, "epsilon=1/2", pair=(0, 1), seed=7, **asked).to_text())
    assert own == {**answer.json, "target": "count"}
    other = audit.audit("t.py:count", "epsilon=1/2", pair=(0, 1), seed=8, **asked)
    assert json.loads(other.to_text()) != answer.json


@pytest.fixture
def shell(audit: Shell) -> Shell:
    return audit


def test_the_text_in_python_is_that_of_the_command(shell: Shell) -> None:
    answer = shell("half-scale", "-n", 2000, "--seed", 7)
    assert f"{audit.audit('half-scale', runs=2000, seed=7)}\n" == answer.out
    # A known law that is also sampled.
    answer = shell("discrete-laplace:scale=1", "--claim", "epsilon=1", "--pair", 0, 1,
                   "-n", 500, "--seed", 7, "--alpha", ALPHA)  # fmt: skip
    noise = DiscreteLaplace(scale=1)
    asked: dict[str, Any] = {"runs": 500, "seed": 7, "confidence": 1 - Fraction(str(ALPHA))}
    report = audit.audit(noise, Claim(epsilon=1), pair=(0, 1), **asked)
    assert [layer.layer for layer in report.layers] == ["exact", "sample"]
    assert f"{report}\n" == answer.out


def test_each_form_of_a_callable_and_several_pairs_are_audited() -> None:
    def plain(dataset: int) -> int:
        return max(dataset, 0)

    def seeded(dataset: int, rng: np.random.Generator) -> int:
        return max(dataset, 0) + int(rng.integers(2))

    def many(dataset: int, n: int, rng: np.random.Generator) -> Any:
        return count(max(dataset, 0), n, rng)

    for target in (plain, seeded, many):
        report = audit.audit(target, "epsilon=0.2", pairs=[(0, -1), (0, 3)], runs=4000, seed=1)
        assert (report.refuted, report.pair) == (True, (0, 3))


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("target", {"target": 5}), ("claim", {"claim": None}),
        ("relation", {"claim": Claim(epsilon=1), "relation": "add-remove"}),
        ("pair", {"pair": None}), ("pair", {"pair": ([1], [1, 2])}),
        ("pairs", {"pairs": [(0, 1)]}), ("pairs", {"pair": None, "pairs": []}),
        ("search", {"search": "integer:low=0,high=3"}), ("feature", {"features": ["nothing"]}),
        ("confidence", {"confidence": "0.9", "alpha": "0.1"}),
        ("runs", {"layers": "replay", "runs": 10}), ("layers", {"layers": "exact"}),
        ("baseline", {"baselines": ["nothing"]}),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_input_is_refused_by_the_name_of_the_argument(
    argument: str, change: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"target": count, "claim": "epsilon=1", "pair": (0, 1), **change}
    with refused(argument):
        audit.audit(**given)


def test_failures_of_a_target_and_ctrl_c_are_passed_on() -> None:
    def raises(dataset: int) -> int:
        raise KeyError("age")

    # A background process may ignore SIGINT.
    calls = iter(range(10**6))

    def stopped(dataset: int) -> int:
        if next(calls) == 500:
            os.kill(os.getpid(), signal.SIGINT)
        return dataset

    with pytest.raises(audit.TargetFailed, match="KeyError"):
        audit.audit(raises, "epsilon=1", pair=(0, 1), runs=100)
    with hearing_ctrl_c(), pytest.raises(KeyboardInterrupt):
        audit.audit(stopped, "epsilon=9", pair=(0, 1), runs=1000)
