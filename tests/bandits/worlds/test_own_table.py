"""A reward table of one's own: what is read, what is refused, and a run of the command."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bandits.worlds.tables import table_arms
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


def test_rewards_are_drawn_with_replacement(tmp_path: Path) -> None:
    table = table_arms(at(tmp_path, "0,1\n1,1\n"))
    # Many more pulls than rows: a sum of fair coins, six deviations of which are 3 sqrt(n).
    total = table.encoded_sum(0, 10**6, 1, np.random.default_rng(1))
    assert 0 < abs(total - 500_000) < 3000
    assert table.encoded_sum(1, 10**6, 1, np.random.default_rng(1)) == 10**6


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
