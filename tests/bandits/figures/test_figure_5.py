"""Figure 5: a stand-in that says that it is one, and a user's own file in its place."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bandits.worlds.letor import letor_arms
from benchmarks.figures.__main__ import QUICK, regenerate
from benchmarks.figures.stand_in import letor_text

TEXT = letor_text(1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("letor") / "train.txt"
    path.write_text(TEXT, encoding="ascii")
    return path


@pytest.mark.nightly
def test_k_means_finds_the_clusters_that_were_written(file: Path) -> None:
    # Each cluster is one query: what is found without k-means, and without the reader.
    rewards: dict[str, list[float]] = {}
    for line in TEXT.splitlines():
        relevance, query, _ = line.split(maxsplit=2)
        rewards.setdefault(query, []).append(int(relevance) / 4)
    wanted = sorted(float(np.mean(found)) for found in rewards.values())
    assert len(wanted) == 50
    assert letor_arms(file).means == pytest.approx(wanted)
    assert letor_text(2) != TEXT


@pytest.mark.nightly
def test_the_page_says_whose_data_they_are(file: Path, tmp_path: Path) -> None:
    effort = replace(QUICK, real=500)
    pages = []
    for name, mslr in (("ours", None), ("theirs", file)):
        folder = tmp_path / name
        folder.mkdir()
        regenerate(folder, effort=effort, seed=1, jobs=1, only=("real_rewards",), mslr=mslr)
        pages.append((folder / "README.md").read_text(encoding="utf-8"))
        assert "NOT MSLR" in (folder / "figure-5.svg").read_text("utf-8") or mslr
    stand_in, given = pages
    assert "generated stand-in, NOT MSLR-WEB10K" in stand_in
    assert "NOT MSLR" not in given
    # The stand-in is that text: the numbers are the same.
    assert stand_in.splitlines()[-10:] == given.splitlines()[-10:]


@pytest.mark.nightly
def test_the_committed_figure_is_not_overwritten_by_other_data(file: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.figures", "--mslr", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--mslr needs an --output" in done.stderr
