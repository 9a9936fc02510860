"""Candidates of a score are learned alike from all runs and from some of them."""

from __future__ import annotations

import numpy as np
import pytest

from audit.features import additive
from audit.features.additive import learn_parts
from audit.features.columns import learn_reader
from audit.outputs.rows import Schema


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_some_of_many_runs_teach_what_all_of_them_do(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Where only every second run is looked at, both halves are still there to check each other."""
    rng = np.random.default_rng(1)
    worlds = rng.random(8000) < 0.5
    vectors = rng.normal(size=(8000, 4))
    vectors[:, 1] += worlds
    table = (schema := Schema()).read(vectors)
    columns = len(learn_reader(table, schema).columns)
    monkeypatch.setattr(additive, "_CELLS", len(table) * columns // step)
    scores = learn_parts(table, worlds, schema).scores(table)
    assert np.isfinite(scores).all()
    right = ((scores[:, 1:3] > np.median(scores[:, 1:3], axis=0)) == worlds[:, None]).mean(axis=0)
    assert (right > 0.66).all()
