"""Reward tables of one's own and data that a user has: what is read, refused, and run."""

from __future__ import annotations

import csv
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import pytest

from bandits.worlds.arms import obd_arms, table_arms
from dpcore.errors import InvalidParameter
from tests.support.typed import typed

TEXT = "left, right,best\n0,1/4,0.9\n1,0.5,1\n0,0.25,1e0\n"


def at(folder: Path, text: str) -> Path:
    path = folder / "rewards.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [TEXT, TEXT.partition("\n")[2], "\ufeff" + TEXT + "\n"])
def test_columns_are_arms_and_rows_are_rewards(tmp_path: Path, text: str) -> None:
    found = table_arms(at(tmp_path, text))
    exact = (Fraction(1, 3), Fraction(1, 3), Fraction(29, 30))
    assert found.means == tuple(map(float, exact))
    assert found.values[1] == (Fraction(1, 4), Fraction(1, 2))
    assert found.counts[1] == (2, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no row of rewards"),
        ("a,b\n", "holds no row of rewards"),
        ("a,b\nc,d\n", "line 2, column 1: 'c' is no reward"),
        ("0,1\n1\n", "line 2 has 1 cells, the first line 2"),
        ("a,b\n1\n", "line 2 has 1 cells, the first line 2"),
        ("0,1\n1,\n", "line 2, column 2: '' is no reward"),
        ("0,1.01\n", "line 1, column 2: '1.01' is no reward"),
        ("-0.1,1\n", "line 1, column 1: '-0.1' is no reward"),
        ("nan,nan\n0,1\n", "line 1, column 1: 'nan' is no reward"),
        ("0,inf\n", "line 1, column 2: 'inf' is no reward"),
        ("a,0.5\n0,1\n", "line 1, column 1: 'a' is no reward"),
        ('0,"1\n', "is no CSV text"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as refused:
        table_arms(at(tmp_path, text))
    assert refused.value.argument == "data"


def test_a_run_on_ones_own_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = at(tmp_path, TEXT)
    words = ["-T", 20000, "--instances", 2, "--algorithms", "dist-dp-se,se", "--json"]
    answer = typed(capsys, "bandit", "run", "own", "--rewards", place, *words)
    assert (answer.code, answer.err) == (0, "")
    rows = answer.json["rows"]
    # No round costs more than the largest gap, 19/30, and the best arm is found.
    assert all(0 < row["regret_per_round"] < 19 / 30 / 3 for row in rows)
    by_data = typed(capsys, "bandit", "run", "own", "--data", place, *words)
    assert by_data.out == answer.out
    for given, said in (
        (["own"], "error: PRESET = own: needs --rewards FILE"),
        (["cz/mslr", "--rewards", place], "error: PRESET = cz/mslr: has rewards of its own"),
        (["lzj/fig2", "--rewards", place], "error: PRESET = lzj/fig2: has rewards of its own"),
        (["own", "--rewards", place, "--data", place], "error: --rewards = "),
        (["own", "--rewards", tmp_path / "none"], "none: No such file"),
        (["own", "--rewards", place, "--arms", 2], "error: --arms = 2"),
    ):
        refused = typed(capsys, "bandit", "run", *given, *words)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err


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
