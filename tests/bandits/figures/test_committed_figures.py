"""docs/figures is what this code makes, and docs/bandits.md quotes it."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bandits.experiments.experiment import Experiment
from benchmarks.figures.__main__ import STUDIES, WHOLE
from benchmarks.figures.section import guarantee_of, regret_of
from benchmarks.figures.sweep import Outcomes, of_experiment
from tests.support.bandits.committed import FIGURES, OTHERS, complaints, results_of, row_of, rows_of
from tests.support.bandits.quotes import BOLD, PAGE, quotes, renewed, stale

RESULTS = results_of(FIGURES)
REPLAYED, EPSILON = ("dist-dp-se", "se"), "0.5"


@pytest.fixture(scope="module")
def played() -> Outcomes:
    """Two cells of the first table, played again: what ``dpcore bandit run`` would play."""
    return of_experiment(
        Experiment(
            preset="cz/easy",
            algorithms=REPLAYED,
            epsilons=(EPSILON,),
            horizon=WHOLE.easy,
            instances=WHOLE.instances,
            radius="paper",
            seed=RESULTS["seed"],
        ),
        jobs=1,
    )


def differences(results: Any, outcomes: Outcomes) -> list[str]:
    """Cells of the table that are not what the code gives."""
    found = []
    for (name, _), outcome in outcomes.items():
        row = row_of(results, "cz", world="easy, T = 1e6", algorithm=name, epsilon=EPSILON)
        told = {
            "paper": (row["paper"], regret_of(outcome)),
            "wrong arm": (row["wrong arm"].split(", ")[0], str(outcome.wrong)),
            "bits": (row["bits"].split(", ")[0], str(outcome.bits)),
            "epsilon at 1e-6": (row["epsilon at 1e-6"], guarantee_of(outcome)[1]),
        }
        found += [
            f"{name}, {column}: {committed}, and the code gives {given}"
            for column, (committed, given) in told.items()
            if committed != given
        ]
    return found


def test_rows_of_the_table_are_what_the_code_gives(played: Outcomes) -> None:
    assert differences(RESULTS, played) == [], "make figures"


def test_a_table_of_other_coins_is_seen(played: Outcomes) -> None:
    others = deepcopy(RESULTS)
    row = row_of(others, "cz", world="easy, T = 1e6", algorithm="dist-dp-se", epsilon=EPSILON)
    row["paper"]["value"] += 1
    row["wrong arm"] = "7, 7, 7"
    found = [line.partition(":")[0] for line in differences(others, played)]
    assert {"dist-dp-se, paper", "dist-dp-se, wrong arm"} <= set(found)


def test_the_committed_page_is_that_of_its_numbers(tmp_path: Path) -> None:
    assert complaints(FIGURES) == []
    for path in FIGURES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    edited = re.sub(r'"value": 0\.\d', '"value": 0.7', text, count=1)
    (tmp_path / "results.json").write_text(edited, encoding="utf-8")
    (tmp_path / "radius.svg").unlink()
    assert complaints(tmp_path) == ["README.md", "radius.svg"]


def test_the_committed_figures_are_of_whole_runs() -> None:
    assert RESULTS["instances"] == WHOLE.instances
    names = [
        "cz",
        "real",
        "schedule",
        "bits",
        "promise",
        "shuffle",
        "returning",
        "linear",
        "remarks",
    ]
    assert [*RESULTS["sections"]] == names
    assert len(names) == len(STUDIES)
    rows = rows_of(RESULTS, "cz")
    assert {row["world"] for row in rows} == {"easy, T = 1e6", "hard, T = 1e7"}
    assert {row["epsilon"] for row in rows} == {"0.1", "0.5", "1"}
    assert len(rows) == 2 * 3 * 9


def test_every_picture_says_what_its_bands_are() -> None:
    note = f"one standard error over {WHOLE.instances} instances"
    pictures = [path for path in FIGURES.glob("*.svg") if path.name not in OTHERS]
    silent = [path.name for path in pictures if note not in path.read_text(encoding="utf-8")]
    assert pictures
    assert silent == []


def test_certified_noise_costs_what_the_page_says() -> None:
    for row in rows_of(RESULTS, "promise"):
        assert float(row["epsilon at 1e-6"]) <= float(row["epsilon asked"])
    weaker = [
        row
        for row in rows_of(RESULTS, "cz", epsilon="0.5")
        if row["algorithm"].startswith("dist-rdp-se")
    ]
    assert weaker
    assert all(float(row["epsilon at 1e-6"]) > 2 for row in weaker)


# -- the page Bandits --------------------------------------------------------------------------


def test_numbers_on_the_page_are_the_committed_ones() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert stale(text, RESULTS) == [], (
        "python -m tests.support.bandits.quotes, then read the sentences"
    )


def test_a_stale_number_is_named_with_its_new_value() -> None:
    text = renewed(PAGE.read_text(encoding="utf-8"), RESULTS)
    assert stale(text, RESULTS) == []
    assert len([*quotes(RESULTS)]) > 30
    first = BOLD.search(text)
    assert first
    edited = text.replace(first[0], "**0.123456**", 1)
    assert [line.partition(": ")[2] for line in stale(edited, RESULTS)] == [
        f"0.123456 should be {first[1]}"
    ]
    assert stale(text + "**0.5**", RESULTS)


def test_numbers_on_the_page_are_on_the_page_of_figures() -> None:
    figures = (FIGURES / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"[\d.]+(?: ± [\d.e-]+)?", figures)
    known = {*cells, *(cell.partition(" ")[0] for cell in cells)}
    quoted = {number for number in BOLD.findall(PAGE.read_text("utf-8")) if "." in number}
    assert len(quoted) > 20
    assert quoted <= known
    assert "0.123456" not in known
