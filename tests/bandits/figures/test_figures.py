"""Tests of figures: verdicts from paired runs, pages from numbers, and what docs/figures shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from bandits.elimination_radii import RadiusName
from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.runner import run_cells
from bandits.policies.successive_elimination import ScheduleName, ShuffleElimination
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer
from bandits.worlds.arm_environments import Bernoulli, Environment
from benchmarks.figures import section
from benchmarks.figures.__main__ import QUICK, STUDIES, WHOLE, regenerate
from benchmarks.figures.page import page
from benchmarks.figures.section import Effort, guarantee_of, is_less, is_same, regret_of
from benchmarks.figures.sweep import Outcome, _outcome, best_of, of_experiment
from tests.support.dpcore.mutants import mutated

TINY = Effort(instances=2, easy=2000, hard=2000, scalings=(1, 10), epsilons=("1",))


def outcome(*final: float) -> Outcome:
    return Outcome(
        label="dist-dp-se", rounds=(100,), regret=tuple((value,) for value in final),
        wrong=0, bits=20, mean_bits=19.5, pure="1/2", epsilon=0.5,
    )  # fmt: skip


NOISY = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
LESS = tuple(value - 0.1 - 0.01 * (i % 2) for i, value in enumerate(NOISY))


def test_a_difference_is_decided_by_paired_runs() -> None:
    # The same values in another order are not paired, so nothing is decided.
    shuffled = (*LESS[3:], *LESS[:3])
    for one, other, less, same in (
        (LESS, NOISY, "holds", "holds"),
        (NOISY, LESS, "does not hold", "holds"),
        (shuffled, NOISY, "not decided", "not decided"),
    ):
        assert is_less("", "", outcome(*one), outcome(*other)).verdict == less
        assert is_same("", "", outcome(*one), outcome(*other)).verdict == same
    bold = mutated(section._less, "mean + ERRORS * error < 0", "mean < 0")
    assert bold(shuffled, NOISY) == "holds"


def test_equality_is_decided_within_a_tenth_and_not_by_a_large_error() -> None:
    noise = (1.0, -1.0, 1.0, -1.0, 1.0, -1.0)

    def off(factor: float, error: float) -> tuple[float, ...]:
        return tuple(x + (factor - 1) * 3.5 + error * z for x, z in zip(NOISY, noise, strict=True))

    for factor, error, verdict in (
        (1.0, 0.0, "holds"),
        (1.04, 0.05, "holds"),
        (0.96, 0.05, "holds"),
        (1.04, 0.5, "not decided"),
        (1.12, 0.1, "not decided"),
        (1.3, 0.05, "does not hold"),
        (0.7, 0.05, "does not hold"),
    ):
        assert section._same(off(factor, error), NOISY) == verdict, factor
    bold = mutated(section._same, "mean + ERRORS * error <= most", "mean <= ERRORS * error")
    assert (bold(off(1, 1), NOISY), section._same(off(1, 1), NOISY)) == ("holds", "not decided")


def test_only_runs_that_dropped_the_best_arm_are_counted() -> None:
    def played(*active: int, best: tuple[int, ...] = (0,)) -> tuple[Environment, Cell]:
        means = tuple(0.5 if arm in best else 0.25 for arm in range(3))
        return Bernoulli(means=means), Cell(
            algorithm="se", epsilon="1", instance=0, regret=(1.0,), pulls=(100, 0, 0),
            active=active, batches=1, bits_per_user=1, mean_bits_per_user=1.0,
        )  # fmt: skip

    lost = [played(1), played(1, 2)]
    kept = [played(0), played(0, 1), played(2, best=(0, 2)), played(1, 2, best=(0, 2))]
    assert _outcome("se", (100,), [*lost, *kept], None).wrong == 2
    assert best_of(Bernoulli(means=(0.1, 0.5, 0.5))) == {1, 2}


def test_a_pure_epsilon_is_rounded_up() -> None:
    third = replace(outcome(1.0), pure="1/3", epsilon=1 / 3)
    assert guarantee_of(third) == ("0.3334", "0.3334")
    assert guarantee_of(outcome(1.0))[0] == "0.5"


@pytest.mark.nightly
def test_every_study_is_played_and_drawn(tmp_path: Path) -> None:
    results = regenerate(tmp_path, effort=QUICK, seed=1, jobs=2)
    assert len(results["sections"]) == len(STUDIES)
    assert complaints(tmp_path) == []


ROOT: Final = Path(__file__).parents[3]
BANDITS: Final = ROOT / "docs" / "bandits.md"
FIGURES: Final = ROOT / "docs" / "figures"
OTHERS: Final = frozenset({"dpsgd.svg"})
"""Pictures of other pages: this one is of no bandit."""


def results_of(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


RESULTS = results_of(FIGURES)


def complaints(folder: Path) -> list[str]:
    """Missing or unused pictures, and a page that differs from its numbers."""
    results = results_of(folder)
    found = []
    if (folder / "README.md").read_text(encoding="utf-8") != page(results):
        found.append("README.md")
    shown = {f"{p['name']}.svg" for s in results["sections"].values() for p in s["pictures"]}
    drawn = {path.name for path in folder.glob("*.svg")} - OTHERS
    return found + sorted(shown ^ drawn)


def rows_of(section: str, **where: Any) -> list[Any]:
    rows = RESULTS["sections"][section]["rows"]
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def row_of(section: str, **where: Any) -> Any:
    (found,) = rows_of(section, **where)
    return found


def test_rows_of_the_table_agree_with_the_code() -> None:
    """Two cells of the first table, as ``dpcore bandit run`` plays them."""
    experiment = Experiment(
        preset="cz/easy",
        algorithms=("dist-dp-se", "se"),
        epsilons=("0.5",),
        horizon=WHOLE.easy,
        instances=WHOLE.instances,
        radius="paper",
        seed=RESULTS["seed"],
    )
    for (name, _), found in of_experiment(experiment, jobs=1).items():
        row = row_of("cz", world="easy, T = 1e6", algorithm=name, epsilon="0.5")
        assert row["paper"] == regret_of(found), "make figures"
        assert row["epsilon at 1e-6"] == guarantee_of(found)[1]
        shown = [row[column].split(", ")[0] for column in ("wrong arm", "bits")]
        assert shown == [str(found.wrong), str(found.bits)]


def test_the_committed_page_agrees_with_its_numbers(tmp_path: Path) -> None:
    assert complaints(FIGURES) == []
    for path in FIGURES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    edited = re.sub(r'"value": 0\.\d', '"value": 0.7', text, count=1)
    (tmp_path / "results.json").write_text(edited, encoding="utf-8")
    (tmp_path / "radius.svg").unlink()
    assert complaints(tmp_path) == ["README.md", "radius.svg"]


def test_the_committed_figures_are_of_complete_runs() -> None:
    assert RESULTS["instances"] == WHOLE.instances
    assert len(RESULTS["sections"]) == len(STUDIES) == 9
    rows = rows_of("cz")
    assert {row["world"] for row in rows} == {"easy, T = 1e6", "hard, T = 1e7"}
    assert {row["epsilon"] for row in rows} == {"0.1", "0.5", "1"}
    assert len(rows) == 2 * 3 * 9


def test_every_figure_explains_its_bands() -> None:
    note = f"one standard error over {WHOLE.instances} instances"
    pictures = [path for path in FIGURES.glob("*.svg") if path.name not in OTHERS]
    silent = [path.name for path in pictures if note not in path.read_text(encoding="utf-8")]
    assert pictures
    assert silent == []


def test_certified_noise_has_the_cost_on_the_page() -> None:
    for row in rows_of("promise"):
        assert float(row["epsilon at 1e-6"]) <= float(row["epsilon asked"])
    weaker = [
        row for row in rows_of("cz", epsilon="0.5") if row["algorithm"].startswith("dist-rdp-se")
    ]
    assert weaker
    assert all(float(row["epsilon at 1e-6"]) > 2 for row in weaker)


def test_numbers_on_the_page_of_bandits_are_on_the_page_of_figures() -> None:
    figures = (FIGURES / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"[\d.]+(?: ± [\d.e-]+)?", figures)
    known = {*cells, *(cell.partition(" ")[0] for cell in cells)}
    bold = re.findall(r"\*\*([\d.]+(?: ± [\d.e-]+)?)\*\*", BANDITS.read_text("utf-8"))
    quoted = {number for number in bold if "." in number}
    assert len(quoted) > 20
    assert quoted <= known
    assert "0.123456" not in known


PAGE: Final = (ROOT / "docs" / "combinatorial.md").read_text("utf-8")
FOUND: Final[dict[str, Any]] = json.loads(
    (ROOT / "benchmarks" / "results" / "combinatorial.json").read_text("utf-8")
)
NAMES: Final = {"cucb-dp": "`cucb-dp`, doubling"}


def exponents(part: str) -> list[str]:
    """A table of exponents, one row for each algorithm."""
    cells: dict[str, list[str]] = {}
    for row in FOUND[part]["rows"]:
        name = NAMES.get(row["algorithm"], f"`{row['algorithm']}`")
        cells.setdefault(name, []).append(f"{row['exponent']:.2f} ± {row['two_se']:.2f}")
    return [f"| {name} | {' | '.join(found)} |" for name, found in cells.items()]


def test_the_tables_on_the_page_are_the_measured_ones() -> None:
    ratios = [
        f"| {row['super_arm']} | {row['ldp1']:.3f} | {row['ldp2']:.3f} "
        f"| {row['ldp1_over_ldp2']:.1f} "
        f"| {row['tree']:.3f} | {row['doubling']:.3f} | {row['tree_over_doubling']:.1f} "
        f"| {row['factorisation']:.3f} |"
        for row in FOUND["ratios"]["rows"]
    ]
    lines, gaps = ratios + exponents("exponents"), exponents("gaps")
    assert (len(lines), len(gaps)) == (6, 3)
    assert [line for line in lines + gaps if line not in PAGE] == []


def test_statements_on_the_page_agree_with_the_measurements() -> None:
    for row, wanted in zip(FOUND["ratios"]["rows"], (3, 6, 11), strict=True):
        assert round(row["ldp1_over_ldp2"]) == wanted
        assert 7 <= row["tree_over_doubling"] <= 8
        assert row["factorisation"] < 1.02 * row["doubling"]
        assert row["ldp2"] < row["ldp1"] < row["uniform"]
    seconds = [row["seconds"] for row in FOUND["speed"]["rows"]]
    shown = f"{round(min(seconds))} to {round(max(seconds))} seconds"
    assert shown in PAGE
    times = [row["seconds"] / row["bare_seconds"] for row in FOUND["speed"]["rows"]]
    assert max(times) < 3
    assert "less than 3 times the time" in PAGE


def regret(algorithm: str, **where: str) -> float:
    given = {"numbers": "exact", "epsilon": "10", "T": "1e6", "alpha": "4/5", **where}
    value = row_of("linear", algorithm=algorithm, **given)["regret"]["value"]
    return float(value)


def test_the_figures_agree_with_an_independent_simulation() -> None:
    dpe, cdp, sdp, ldp = map(regret, ("dpe", "cdp-dpe", "sdp-dpe", "ldp-dpe"))
    assert dpe < cdp < 3 * dpe
    assert sdp < 1.5 * cdp
    assert 50 * cdp < ldp < 0.65
    # With the paper's constants, local and shuffled noise leave uniform play.
    for name in ("ldp-dpe", "sdp-dpe"):
        assert regret(name, numbers="paper") == pytest.approx(0.65, abs=0.05)


def test_the_best_action_is_never_lost() -> None:
    assert {row["best lost"] for row in rows_of("linear")} == {0}


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["dpe", "cdp-dpe"])
def test_rows_of_linear_bandits_agree_with_the_code(name: str) -> None:
    experiment = Experiment(
        preset="lzj/fig2",
        algorithms=("dpe", "cdp-dpe", "sdp-dpe", "ldp-dpe", "dpe-fixedu"),
        epsilons=("10",),
        delta="0.25",
        horizon=10**6,
        instances=WHOLE.instances,
        seed=RESULTS["seed"],
    )
    found = of_experiment(experiment, jobs=2)[name, "10"]
    assert regret_of(found)["value"] == regret(name)


TEXT_OF_PAGE = " ".join(BANDITS.read_text("utf-8").split())
HORIZON = 10**6


def decided(policy: ShuffleElimination, gap: float) -> int:
    """The pulls of an arm by the first phase with 2 I below its gap, where it is dropped."""
    phase = 1
    while 2 * policy.width(phase, HORIZON) >= gap:
        phase += 1
    return policy.pulled(phase)


def both(epsilon: str, gap: float, *, paper: bool) -> tuple[int, int]:
    """Pulls of SDP-AE, with batches as long as one user has noise bits, and of VB-SDP-AE."""
    bits = BitPrivatizer(epsilon=epsilon, delta="1e-6", parameters="paper" if paper else "exact")
    radius: RadiusName = "paper" if paper else "exact"
    batch = int(bits.protocol(1).planned_noise.trials)
    steady = ShuffleElimination(privatizer=bits, batch=batch, radius=radius)
    return decided(steady, gap), decided(ShuffleElimination(privatizer=bits, radius=radius), gap)


@pytest.mark.parametrize(("gap", "first"), [(0.1, True), (0.02, False), (0.01, False)])
def test_doubling_batches_win_at_the_gaps_stated_on_the_page(
    gap: float, first: bool
) -> None:  # a case
    constant, doubling = both("0.5", gap, paper=True)
    assert (constant < doubling) is first
    assert f"{constant:,}" in TEXT_OF_PAGE
    assert f"{doubling:,}" in TEXT_OF_PAGE


def regrets(schedule: ScheduleName) -> dict[tuple[str, str], float]:
    """The mean regret of each algorithm and epsilon on easy instances, with the paper's radius."""
    experiment = Experiment(
        preset="cz/easy",
        algorithms=("dist-dp-se", "cdp-se", "dist-rdp-se", "dist-cdp-se", "ldp-se", "se"),
        epsilons=("0.1", "0.5", "1"),
        horizon=HORIZON,
        instances=20,
        radius="paper",
        schedule=schedule,
    )
    found: dict[tuple[str, str], list[float]] = {}
    cells: list[Cell] = run_cells(experiment, experiment.worlds(), jobs=2)
    for cell in cells:
        found.setdefault((cell.algorithm, cell.epsilon), []).append(cell.regret[-1])
    return {kind: sum(each) / len(each) for kind, each in found.items()}


@pytest.mark.nightly  # 720 runs of a million rounds
def test_batches_of_the_paper_cost_more_than_those_of_its_code() -> None:
    own, released = regrets("paper"), regrets("released")
    more = {kind: round(100 * (own[kind] / released[kind] - 1)) for kind in own}
    first = [more["dist-dp-se", epsilon] for epsilon in ("1/10", "1/2", "1")]
    others = [each for (name, _), each in more.items() if name != "dist-dp-se"]
    said = "{}, {} and {} percent more regret".format(*first)
    assert said in TEXT_OF_PAGE, (first, sorted(others))
    assert (
        f"the other algorithms between {min(others)} and {max(others)} percent" in TEXT_OF_PAGE
    ), sorted(others)
