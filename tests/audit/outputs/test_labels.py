"""Labels by their place in a reading: as a dictionary of their names would have them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit.evidence.event import Labels

NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8).map(tuple)


@given(st.data(), st.lists(NAMES, min_size=1, max_size=3))
def test_columns_are_those_of_a_dictionary(data: st.DataObject, readings: list[tuple[str]]) -> None:
    labels, by_name = Labels(), dict[object, int]()
    for _ in range(5):
        names = data.draw(st.sampled_from(readings))
        some = st.lists(st.integers(0, len(names) - 1), unique=True) if names else st.just([])
        codes = np.array(data.draw(some), dtype=np.int64)
        expected = [by_name.get(names[code], -1) for code in codes]
        assert labels.find(names, codes).tolist() == expected
        labels, columns = labels.add(names, codes)
        assert columns.tolist() == [by_name.setdefault(names[code], len(by_name)) for code in codes]
        assert (list(labels), len(labels)) == (list(by_name), len(by_name))
