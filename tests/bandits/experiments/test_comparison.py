"""Two documents side by side: whose errors add up, and which worlds are the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bandits.experiments.comparison import compare
from dpcore.errors import InvalidParameter

HEAD: dict[str, Any] = {"preset": "x", "arms": 2, "horizon": 10, "data": None}


def document(*regret: float, **more: Any) -> dict[str, Any]:
    row = {"algorithm": "se", "epsilon": 1.0, "by_instance": [*regret]}
    return {**HEAD, **more, "rows": [row]}


def test_errors_apart_add_up_as_those_of_independent_means() -> None:
    # Means 0.4 and 0.2, errors 0.2 and 0.1: R = 2.
    (found,) = compare(document(0.2, 0.6), document(0.1, 0.1, 0.4))
    assert not found.paired
    assert found.ratio == pytest.approx(2)
    assert found.error == pytest.approx(math.hypot(0.2, 2 * 0.1) / 0.2)


@pytest.mark.parametrize(
    ("name", "other"), [("preset", "y"), ("arms", 3), ("horizon", 11), ("data", "b" * 64)]
)
def test_other_worlds_do_not_compare(name: str, other: Any) -> None:
    one = document(0.2, 0.6, data="a" * 64)
    assert compare(one, one)[0].ratio == 1
    with pytest.raises(InvalidParameter) as refused:
        compare(one, {**one, name: other})
    assert refused.value.argument == name
