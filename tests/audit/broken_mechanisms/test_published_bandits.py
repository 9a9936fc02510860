"""Tests of the example that audits published code, on stand-ins with both faults and with none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.day_and_nightly import by_day

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "published_bandits.py"

# The interface that the example requires of such a file; the braces mark the places of the faults.
TEXT = """
import itertools
import sys

import numpy as np

# Every load has coins of its own, the same in every run of the test.
loads = sys.modules.setdefault("loads_of_the_stand_in", itertools.count())
rng = np.random.default_rng([1, next(loads)])


class Algorithm:
    def __init__(self, world, horizon, settings):
        self.arms, self.epsilon = world.K, world.epsilon
        self.growth = settings["dc"]


class DPSE(Algorithm):
    def central_rand(self):
        return self.rewards + rng.laplace(0, 1 / self.epsilon{many})


class BatchSEDistDP(Algorithm):
    def local_rand(self, x):
        self.precision = np.ceil(self.epsilon * np.sqrt(self.BatchSize))
        beta = np.exp(-self.epsilon / self.precision)
        odds = {odds}
        share = [rng.poisson(rng.gamma(1 / self.BatchSize, odds)) for _ in "+-"]
        return x * self.precision + share[0] - share[1]

    def central_rand(self):
        return self.rewards / self.precision
"""
MANY, ODDS = ", self.arms", "beta / (1 - beta)"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@by_day(1)
@pytest.mark.parametrize(
    ("many", "odds", "verdicts"),
    [
        (MANY, ODDS, ["NOT REFUTED", "NOT REFUTED"]),
        ("", ODDS, ["REFUTED", "NOT REFUTED"]),
        (MANY, "(1 - beta) / beta", ["NOT REFUTED", "REFUTED"]),
    ],
    ids=["correct", "one draw", "inverted odds"],
)
def test_each_fault_is_refuted_and_code_without_faults_is_not(
    tmp_path: Path, many: str, odds: str, verdicts: list[str]
) -> None:
    path = tmp_path / "published.py"
    path.write_text(TEXT.format(many=many, odds=odds), encoding="utf-8")
    done = run(str(path))
    heads = re.findall(r"^(?:NOT )?REFUTED", done.stdout, re.MULTILINE)
    assert heads == verdicts, done.stdout + done.stderr
    assert done.returncode == int("REFUTED" in verdicts)
