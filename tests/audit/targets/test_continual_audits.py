"""Audits of running sums: refuted with missing or redrawn noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from audit.targets.continual import target_of
from audit.targets.target import Catalogued
from audit.targets.target_syntax import read_target
from dpcore import DiscreteLaplace, InvalidParameter, SeededRng
from dpcore.continual_sums import TreeSum
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.running_sums import BareLevelTree


def report_of(target: Any, runs: int, alpha: float = 1e-3) -> AuditReport:
    return audit(target, runs=runs, confidence=1 - Fraction(alpha), seed=3)


def redrawn(T: int, *, anew: bool) -> Catalogued:
    """A tree over T items, in arrays; if ``anew``, a node gets new noise each time it is used."""
    noise = DiscreteLaplace(scale=Fraction(T.bit_length(), 4))
    claimed = target_of(TreeSum(horizon=T, noise=noise), Fraction(4), spelling="tree in arrays")

    def run(dataset: list[int], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        drawn = SeededRng(int(rng.integers(1 << 62)))
        sums = np.tile(np.cumsum(dataset), (n, 1))
        for level in range(T.bit_length()):
            times = np.array([t for t in range(1, T + 1) if t >> level & 1])
            nodes = times if anew else times >> level
            places = np.unique(nodes, return_inverse=True)[1]
            sums[:, times - 1] += noise.sample((n, places.max() + 1), rng=drawn)[:, places]
        return sums

    return replace(claimed, function=run, subject=replace(claimed.subject, run=run))


def test_missing_and_redrawn_noise_are_refuted_and_noise_drawn_once_is_not() -> None:
    bare = BareLevelTree(horizon=8, noise=DiscreteLaplace(scale=4))
    assert report_of(target_of(bare, Fraction(1), spelling="bare"), 100).verdict == "refuted"
    alpha = buy_alpha("audit of a tree in arrays", "1e-9")
    assert report_of(redrawn(255, anew=True), 2000).verdict == "refuted"
    assert report_of(redrawn(255, anew=False), 3000, alpha).verdict == "not_refuted"


@pytest.mark.parametrize("dataset", [[1, 0], 3, "1111", [1, 0, 2, 0]])
def test_a_dataset_is_a_stream_of_items(dataset: Any) -> None:
    target = read_target("continual:tree,horizon=4,epsilon=1")
    assert isinstance(target, Catalogued)
    with pytest.raises(InvalidParameter, match=r"dataset|item"):
        target.function(dataset, 1, np.random.default_rng(1))
