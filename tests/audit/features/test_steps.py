"""Places in a step function: by bins or one by one, they are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.features import steps
from audit.features.steps import cuts_of, placed
from tests.effort import effort

FLOATS = st.floats(-1e308, 1e308)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, 5e-324])
@settings(max_examples=effort(15, 200))
@given(
    st.lists(FLOATS, min_size=17, max_size=40, unique=True).map(sorted),
    st.lists(FLOATS, min_size=1, max_size=60),
    st.integers(0, 2**20),
)
def test_bins_give_the_places_that_a_search_gives(
    scale: float, cuts: list[float], numbers: list[float], seed: int
) -> None:
    near = np.random.default_rng(seed).normal(size=20) * scale
    edges = np.unique(np.concatenate((np.array(cuts) * min(scale, 1.0), near)))
    found = np.concatenate((numbers, near, edges, np.nextafter(edges, -np.inf)))
    many = np.resize(found[np.isfinite(found)], steps._MANY)
    places = placed(edges, many, np.zeros(len(many), np.int16), 128)
    assert places.tolist() == np.searchsorted(edges, many, side="right").tolist()


def test_most_places_take_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, searched = np.random.default_rng(1).laplace(size=20_000), []
    cuts, search = cuts_of(numbers), np.searchsorted

    def counted(within: Any, values: Any, **how: Any) -> Any:
        searched.append(len(values))
        return search(within, values, **how)

    monkeypatch.setattr(np, "searchsorted", counted)
    placed(cuts, numbers, np.zeros(len(numbers), np.int16), 128)
    assert max(searched) < len(numbers) / 5
