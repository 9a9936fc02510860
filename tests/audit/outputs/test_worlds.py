"""The worlds of an audit: fair coins, one a run, and the outputs of each world in their places."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from audit.outputs.form import draw_worlds, interleave
from dpcore.errors import InvalidParameter
from tests.purse import purse


def test_draw_worlds_are_fair_independent_coins() -> None:
    alpha = purse.buy("draw_worlds: patterns of three", "1e-9")
    rng = np.random.default_rng(3)
    drawn = np.array([draw_worlds(3, rng) for _ in range(4000)])
    counts = np.bincount(drawn @ [1, 2, 4], minlength=8)
    assert stats.chisquare(counts).pvalue > alpha
    halves = np.array([rng.permutation([False, True, rng.random() < 0.5]) for _ in range(4000)])
    assert stats.chisquare(np.bincount(halves @ [1, 2, 4], minlength=8) + 1e-9).pvalue < alpha


def test_interleave_keeps_each_world_and_refuses_other_sizes() -> None:
    rng = np.random.default_rng(0)
    worlds = draw_worlds(50, rng)
    in_b = int(worlds.sum())
    both = interleave(np.arange(50 - in_b), -1.0 - np.arange(in_b), worlds, rng).astype(float)
    assert sorted(both[~worlds]) == list(range(50 - in_b))
    assert (both[worlds] < 0).all()
    with pytest.raises(InvalidParameter, match="world_a"):
        interleave([1], [2, 3], np.array([True, True]), rng)
    with pytest.raises(InvalidParameter, match="world_b"):
        interleave([[1, 2]], [[1]], np.array([True, False]), rng)
