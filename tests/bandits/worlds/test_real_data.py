"""Real logs: the sample of the Open Bandit Dataset that comes with its own package."""

from __future__ import annotations

import csv
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bandits.worlds.tables import obd_arms
from tests.support.typed import typed

PACKAGE = "obp==0.4.1"
LOG = "obp/dataset/obd/random/all/all.csv"

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("obd")
    wanted = ("--no-deps", "--only-binary=:all:", "-qq", "-d", str(folder), PACKAGE)
    subprocess.run([sys.executable, "-m", "pip", "download", *wanted], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        return Path(held.extract(LOG, folder))


def test_the_arms_are_the_click_rates_of_the_log(log: Path) -> None:
    with log.open(newline="", encoding="utf-8") as file:
        rows = [(int(row["item_id"]), int(row["click"])) for row in csv.DictReader(file)]
    assert len(rows) == 10_000
    found = obd_arms(log)
    assert found.arms == 80
    for item, mean in enumerate(found.means):
        clicks = [click for shown, click in rows if shown == item]
        assert mean == sum(clicks) / len(clicks)


def test_shuffled_bits_run_on_real_means(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--epsilon", "1", "-T", "1e5", "--instances", "2", "--json")
    answer = typed(capsys, "bandit", "run", "obd", "--data", log, *options)
    assert answer.code == 0, answer
    rows = {row["algorithm"]: row for row in answer.json["rows"]}
    assert [*rows] == ["sdp-ae", "vb-sdp-ae", "dist-dp-se", "se"]
    # Rates of a few clicks in a thousand: no regret exceeds the best rate.
    best = max(obd_arms(log).means)
    assert all(0 < row["regret_per_round"] < best for row in rows.values())
