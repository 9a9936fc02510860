"""Figures and tables: verdicts are read off pairs, pages off the numbers, numbers off seeds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bandits.figures import section
from bandits.figures.__main__ import QUICK, STUDIES, WHOLE, regenerate
from bandits.figures.page import page, table
from bandits.figures.section import Effort, falls, is_less, is_same
from bandits.figures.sweep import Outcome, Ratio, _outcome, _Played, ratio
from dpcore.errors import InvalidParameter
from tests.dpcore.mutants import mutated

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
TINY = Effort(instances=2, easy=2000, hard=2000, scalings=(1, 10), epsilons=("1",))


def outcome(*final: float) -> Outcome:
    return Outcome(
        label="dist-dp-se", rounds=(100,), regret=tuple((value,) for value in final),
        wrong=0, bits=20, mean_bits=19.5, pure="1/2", epsilon=0.5,
    )  # fmt: skip


# -- verdicts ----------------------------------------------------------------------------------

NOISY = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
LESS = tuple(value - 0.1 - 0.01 * (i % 2) for i, value in enumerate(NOISY))


def test_a_small_difference_of_pairs_is_seen() -> None:
    assert is_less("", "", outcome(*LESS), outcome(*NOISY)).verdict == "holds"
    assert is_less("", "", outcome(*NOISY), outcome(*LESS)).verdict == "does not hold"
    assert is_same("", "", outcome(*NOISY), outcome(*LESS)).verdict == "does not hold"
    # The same values in another order are no pairs: nothing is decided.
    shuffled = outcome(*LESS[3:], *LESS[:3])
    assert is_less("", "", shuffled, outcome(*NOISY)).verdict == "not decided"
    assert is_same("", "", shuffled, outcome(*NOISY)).verdict == "holds"


def test_a_verdict_that_ignores_the_error_decides_too_much() -> None:
    shuffled = np.array((*LESS[3:], *LESS[:3])) - np.array(NOISY)
    assert section._less(shuffled) == "not decided"
    bold = mutated(section._less, "mean + ERRORS * error < 0", "mean < 0")
    assert bold(shuffled) == "holds"


def test_far_below_is_more_than_below() -> None:
    third = outcome(*(value / 2 for value in NOISY))
    assert is_less("", "", third, outcome(*NOISY)).verdict == "holds"
    far = is_less("", "", third, outcome(*NOISY), at_most=1 / 3)
    assert (far.verdict, far.figures) == ("does not hold", "0.5 ± 0")


def test_what_falls() -> None:
    def values(*pairs: tuple[float, float]) -> list[Ratio]:
        return [Ratio(value=value, error=error) for value, error in pairs]

    assert falls("", "", values((3, 0.1), (2, 0.1), (1, 0.1))).verdict == "holds"
    assert falls("", "", values((3, 0.1), (2, 0.1), (1.9, 0.1))).verdict == "not decided"
    assert falls("", "", values((1, 0.1), (2, 0.1), (0.5, 0.1))).verdict == "does not hold"


def test_the_error_of_a_ratio_is_that_of_pairs() -> None:
    world = np.random.default_rng(1)
    below = world.gamma(4.0, size=400)
    above = below * (0.5 + 0.05 * world.standard_normal(400))
    found = ratio(above.tolist(), below.tolist())
    draws = world.integers(400, size=(2000, 400))
    again = above[draws].mean(axis=1) / below[draws].mean(axis=1)
    assert found.error == pytest.approx(again.std(), rel=0.1)
    apart = world.permutation(above)
    assert ratio(apart.tolist(), below.tolist()).error > 5 * found.error


def test_a_run_that_ends_at_a_wrong_arm_is_counted() -> None:
    def played(*pulls: int) -> _Played:
        return _Played(regret=(1.0,), pulls=pulls, bits=1, mean_bits=1.0, best=0)

    runs = [played(90, 5, 5), played(5, 90, 5), played(30, 35, 35)]
    assert _outcome("se", (100,), runs, None).wrong == 1


def test_bad_ratios() -> None:
    for above, below, reason in (
        ([1.0], [1.0], "2 or more"),
        ([1.0, 2.0], [1.0], "must be 1"),
        ([1.0, 2.0], [0.0, 0.0], "mean > 0"),
    ):
        with pytest.raises(InvalidParameter, match=reason):
            ratio(above, below)


# -- the page ----------------------------------------------------------------------------------


def test_cells_are_shown_with_their_errors() -> None:
    rows = [{"a": {"value": 0.012346, "error": 0.000123}, "b": "x|y", "c": 0.25, "d": 7}]
    assert table(rows).splitlines()[2] == r"| 0.0123 ± 0.00012 | x\|y | 0.25 | 7 |"


def test_the_same_seed_gives_the_same_folder(tmp_path: Path) -> None:
    folders = []
    for name, jobs in (("one", 1), ("two", 2)):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        regenerate(folders[-1], effort=TINY, seed=3, jobs=jobs, only=("schedules",))
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert sorted(files[0]) == ["README.md", "results.json", "schedule.svg"]
    assert files[0] == files[1]
    (tmp_path / "three").mkdir()
    regenerate(tmp_path / "three", effort=TINY, seed=4, jobs=1, only=("schedules",))
    assert (tmp_path / "three" / "results.json").read_bytes() != files[0]["results.json"]


def test_bad_requests(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="one of"):
        regenerate(tmp_path, effort=TINY, seed=1, jobs=1, only=("magic",))
    with pytest.raises(InvalidParameter, match="no folder"):
        regenerate(tmp_path / "absent", effort=TINY, seed=1, jobs=1)


@pytest.mark.nightly
def test_every_study_is_played_and_drawn(tmp_path: Path) -> None:
    results = regenerate(tmp_path, effort=QUICK, seed=1, jobs=2)
    assert len(results["sections"]) == len(STUDIES)
    assert complaints(tmp_path) == []


# -- what is committed -------------------------------------------------------------------------


def results_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def complaints(folder: Path) -> list[str]:
    """Pictures that are missing or nobody shows, and a page that is not the numbers'."""
    results = results_of(folder)
    found = []
    if (folder / "README.md").read_text(encoding="utf-8") != page(results):
        found.append("README.md")
    shown = {f"{p['name']}.svg" for s in results["sections"].values() for p in s["pictures"]}
    drawn = {path.name for path in folder.glob("*.svg")}
    return found + sorted(shown ^ drawn)


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
    results = results_of(FIGURES)
    assert results["instances"] == WHOLE.instances
    assert [*results["sections"]] == ["cz", "schedule", "bits", "promise", "shuffle", "returning"]
    rows = results["sections"]["cz"]["rows"]
    assert {row["world"] for row in rows} == {"easy, T = 1e6", "hard, T = 1e7"}
    assert {row["epsilon"] for row in rows} == {"0.1", "0.5", "1"}
    assert len(rows) == 2 * 3 * 9


def cells(name: str, **where: Any) -> list[Any]:
    return [
        row
        for row in results_of(FIGURES)["sections"][name]["rows"]
        if all(row[key] == value for key, value in where.items())
    ]


def quoted() -> set[str]:
    """The numbers in bold on the page Bandits: each must be one of the committed results."""
    text = (ROOT / "docs" / "bandits.md").read_text(encoding="utf-8")
    return set(re.findall(r"\*\*([\d.]+(?: ± [\d.]+)?)\*\*", text))


def known() -> set[str]:
    found: set[str] = set()
    for cell in re.findall(r"[\d.]+(?: ± [\d.]+)?", (FIGURES / "README.md").read_text("utf-8")):
        found |= {cell, cell.partition(" ")[0]}
    return found


def test_numbers_on_the_page_are_committed_ones() -> None:
    assert len(quoted()) > 5
    assert quoted() <= known()
    assert "0.123456" not in known()


def test_certified_noise_costs_what_the_page_says() -> None:
    for row in cells("promise"):
        assert float(row["epsilon at 1e-6"]) <= float(row["epsilon asked"])
    weaker = cells("cz", algorithm="dist-rdp-se", epsilon="0.5")
    assert all(float(row["epsilon at 1e-6"]) > 2 for row in weaker)
