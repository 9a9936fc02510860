r"""``dpcore budget continual`` as a user types it."""

from __future__ import annotations

import math

import pytest

from accounting import guarantee
from accounting.budget.continual import MECHANISMS
from dpcore.spelling import noise_from_json
from tests.support.typed import Command


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_rows_can_be_run_and_keep_the_target(command: Command, delta: str) -> None:
    answer = command("continual", "--horizon", 64, "--epsilon", 1, "--delta", delta, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert found["target"] == {"horizon": 64, "epsilon": 1.0, "delta": float(delta)}
    assert [row["mechanism"] for row in found["continual"]] == [*MECHANISMS]
    for row in found["continual"]:
        given = {key: row[key] for key in ("grid",) if key in row}
        setting = MECHANISMS[row["mechanism"]](
            horizon=64, noise=noise_from_json(row["noise"]), **given
        )
        assert guarantee(setting).epsilon(delta).upper <= 1
        ends = row["mean_squared_error"]
        times = range(1, 65)
        mean = sum(float(setting.mean_squared_error(t).upper) for t in times) / 64
        assert ends["lower"] <= mean * (1 + 1e-9)
        assert ends["upper"] == pytest.approx(mean, rel=1e-9)


def test_the_table(command: Command) -> None:
    lines = command("continual", "--horizon", "1e3", "--epsilon", 1).out.splitlines()
    assert lines[1].split()[:3] == ["tree", "discrete-laplace:scale=10", "1"]
    # Ten levels at scale 10; 512 items come before the last power of two.
    variance = 1 / (2 * math.sinh(1 / 20) ** 2)
    assert float(lines[1].split()[5]) == pytest.approx(math.sqrt(9 * variance), rel=1e-3)
    assert lines[2].split()[-1] == "488"
