"""The baselines, beside plain re-computations of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from audit.baseline import clopper_pearson_split
from audit.confidence import draw_worlds
from dpcore.errors import InvalidParameter


def test_the_baseline_against_a_plain_one() -> None:
    rng = np.random.default_rng(6)
    worlds = draw_worlds(400, rng)
    outputs = worlds + rng.geometric(0.6, 400) - rng.geometric(0.6, 400)
    order = np.random.default_rng(7).permutation(400)

    def bounds(part: np.ndarray, level: float) -> dict[tuple[int, bool, int], float]:
        found = {}
        for t in np.unique(outputs[order[:200]]):
            for above, world in itertools.product((False, True), (0, 1)):
                inside = (outputs[part] > t) == above
                k, n = np.sum(inside & (worlds[part] == world)), np.sum(worlds[part] == world)
                j, m = np.sum(inside & (worlds[part] != world)), np.sum(worlds[part] != world)
                low = stats.beta.ppf(level, k, n - k + 1) if k else 0.0
                high = stats.beta.ppf(1 - level, j + 1, m - j) if j < m else 1.0
                found[int(t), above, world] = math.log(low / high) if low else -math.inf
        return found

    train = bounds(order[:200], 0.025)
    best = max(train.values())
    tested = bounds(order[200:], 0.025)
    found = clopper_pearson_split(outputs, worlds, seed=7)
    assert any(
        found == pytest.approx(max(0.0, tested[event]))
        for event, value in train.items()
        if value == best
    )


def test_labels_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="outputs"):
        clopper_pearson_split(["x"], [True], seed=1)
