"""Tests of figures and tables: verdicts from paired runs, pages from numbers, fixed seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from accounting.composition.returning_users import per_user, routes
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.experiments.experiment import Cell
from bandits.privatizers.returning_users import SteadyPrivatizer
from bandits.worlds.arm_environments import Bernoulli, Environment
from benchmarks.figures import section
from benchmarks.figures.__main__ import QUICK, STUDIES, main, regenerate
from benchmarks.figures.returning_table import Route, visit_noise
from benchmarks.figures.section import Effort, guarantee_of, is_less, is_same
from benchmarks.figures.sweep import Outcome, _outcome, best_of, ratio
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_laplace import DiscreteLaplace
from tests.effort import by_day
from tests.support.bandits.committed import complaints
from tests.support.dpcore.mutants import mutated

TINY = Effort(instances=2, easy=2000, hard=2000, scalings=(1, 10), epsilons=("1",))


def outcome(*final: float) -> Outcome:
    return Outcome(
        label="dist-dp-se", rounds=(100,), regret=tuple((value,) for value in final),
        wrong=0, bits=20, mean_bits=19.5, pure="1/2", epsilon=0.5,
    )  # fmt: skip


NOISY = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
LESS = tuple(value - 0.1 - 0.01 * (i % 2) for i, value in enumerate(NOISY))


def test_a_small_difference_of_pairs_is_seen() -> None:
    assert is_less("", "", outcome(*LESS), outcome(*NOISY)).verdict == "holds"
    assert is_less("", "", outcome(*NOISY), outcome(*LESS)).verdict == "does not hold"
    assert is_same("", "", outcome(*LESS), outcome(*NOISY)).verdict == "holds"
    # The same values in another order are not paired, so nothing is decided.
    shuffled = outcome(*LESS[3:], *LESS[:3])
    assert is_less("", "", shuffled, outcome(*NOISY)).verdict == "not decided"
    assert is_same("", "", shuffled, outcome(*NOISY)).verdict == "not decided"


def test_a_verdict_that_ignores_the_error_decides_too_much() -> None:
    shuffled = (*LESS[3:], *LESS[:3])
    assert section._less(shuffled, NOISY) == "not decided"
    bold = mutated(section._less, "mean + ERRORS * error < 0", "mean < 0")
    assert bold(shuffled, NOISY) == "holds"


def test_the_same_is_decided_by_a_tenth_and_not_by_a_large_error() -> None:
    other = np.array(NOISY)
    noise = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    for factor, error, verdict in (
        (1.0, 0.0, "holds"),
        (1.04, 0.05, "holds"),
        (0.96, 0.05, "holds"),
        (1.04, 0.5, "not decided"),
        (1.12, 0.1, "not decided"),
        (1.3, 0.05, "does not hold"),
        (0.7, 0.05, "does not hold"),
    ):
        one = other + (factor - 1) * other.mean() + error * noise
        assert section._same(tuple(one), NOISY) == verdict, factor
    # A large error does not show equality.
    bold = mutated(section._same, "mean + ERRORS * error <= most", "mean <= ERRORS * error")
    assert bold(tuple(other + noise), NOISY) == "holds"
    assert section._same(tuple(other + noise), NOISY) == "not decided"


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


def test_a_run_without_its_best_arm_is_counted_and_no_other() -> None:
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
def test_the_same_seed_gives_the_same_folder(tmp_path: Path) -> None:
    folders = []
    for name, jobs in (("one", 1), ("two", 2)):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        regenerate(folders[-1], effort=TINY, seed=3, jobs=jobs, only=("schedules",))
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert sorted(files[0]) == ["README.md", "results.json", "schedule.svg"]
    note = "bands and bars: one standard error over 2 instances"
    assert note.encode() in files[0]["schedule.svg"]
    assert b"one standard error" in files[0]["README.md"]
    assert files[0] == files[1]
    (tmp_path / "three").mkdir()
    regenerate(tmp_path / "three", effort=TINY, seed=4, jobs=1, only=("schedules",))
    assert (tmp_path / "three" / "results.json").read_bytes() != files[0]["results.json"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--output FILE --quick", "--output = FILE: is not a folder"),
        ("--output FOLDER --quick --jobs 0 --only equal_promises", "jobs = 0: must be"),
        ("--output FOLDER --quick --jobs -5", "jobs = -5: must be"),
        ("--output FOLDER --quick --only magic", "argument --only: invalid choice: 'magic'"),
        ("--only schedules", "--only requires --output"),
        ("--quick", "--quick requires --output"),
        ("--output FOLDER --quick --mslr absent.txt --only real_rewards", "absent.txt"),
    ],
)
def test_bad_commands_end_with_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    complaint: str,
) -> None:
    (tmp_path / "FILE").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmarks.figures", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "FOLDER").exists() or "--mslr" in words


@pytest.mark.nightly
def test_every_study_is_played_and_drawn(tmp_path: Path) -> None:
    results = regenerate(tmp_path, effort=QUICK, seed=1, jobs=2)
    assert len(results["sections"]) == len(STUDIES)
    assert complaints(tmp_path) == []


@by_day(1)
@pytest.mark.parametrize("max_visits", [1, 4, 16])
def test_each_route_certifies_its_noise_and_looser_ones_need_more(max_visits: int) -> None:
    found = {
        route: visit_noise(
            law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=max_visits, route=route
        )
        for route in get_args(Route)
    }
    scales = {
        route: SteadyPrivatizer(law=noise, steps=16, failure="1e-3").deviation
        for route, noise in found.items()
    }
    assert scales["exact"] <= scales["renyi"] * 1.01
    assert scales["exact"] <= scales["advanced"] * 1.01
    for route in ("exact", "renyi"):
        steady = SteadyPrivatizer(law=found[route], steps=16, failure="1e-3")
        bounds = {each.method: each.bound for each in routes(total_of(steady, max_visits), "1e-6")}
        bound = bounds[route]
        assert bound is not None
        assert bound.upper <= 1


def total_of(steady: SteadyPrivatizer, max_visits: int) -> Any:
    return per_user(steady.curve, max_visits=max_visits)


def test_less_noise_than_a_route_found_is_not_certified() -> None:
    noise = visit_noise(
        law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=64, route="renyi"
    )
    assert isinstance(noise, DiscreteLaplace)
    less = DiscreteLaplace(scale=Fraction(noise.scale) * Fraction(99, 100))
    steady = SteadyPrivatizer(law=less, steps=16, failure="1e-3")
    bound = next(
        each.bound for each in routes(total_of(steady, 64), "1e-6") if each.method == "renyi"
    )
    assert bound is not None
    assert bound.upper > 1


@pytest.mark.nightly  # a search over compositions of binomial noise
def test_bits_by_advanced_composition_are_equation_14() -> None:
    given: dict[str, Any] = {"law": "binomial", "epsilon": 1, "delta": "1e-6", "max_visits": 64}
    bits = visit_noise(route="advanced", **given)
    exact = visit_noise(route="exact", **given)
    assert isinstance(bits, Binomial)
    assert isinstance(exact, Binomial)
    deviations = [math.sqrt(float(law.trials) / 4) for law in (bits, exact)]
    assert [round(each, 1) for each in deviations] == [193.2, 33.8]
    for trials, enough in ((bits.trials, True), (int(bits.trials * 0.97), False)):
        visit = PrivacyCurve(noise=Binomial(trials=trials, probability="1/2"), sensitivity=1)
        found = {each.method: each.bound for each in routes(per_user(visit, max_visits=64), "1e-6")}
        bounds = [found[way] for way in ("advanced", "basic")]
        assert (min(float(b.upper) for b in bounds if b is not None) <= 1) is enough
        assert found["renyi"] is None  # bits have bounded support, so no divergence is finite
