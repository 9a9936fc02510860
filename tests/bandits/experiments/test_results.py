"""The folder of a run: whose files are in it, under which names, and what they say."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting.claims.bound import Bound
from accounting.claims.claim import Pure
from accounting.errors import NotDerived
from bandits.certificates import certificate
from bandits.experiments import results, summary
from bandits.experiments.curves import Line, draw_results, without_regret
from bandits.experiments.experiment import Experiment
from bandits.experiments.playing import play_task, run_cells
from bandits.experiments.results import certificate_name
from bandits.experiments.summary import guarantee_json, written_up
from bandits.privatizers.privatizer import RunGuarantee
from dpcore.errors import InvalidParameter
from tests.support.bandits.command import MAIN, Bandit
from tests.support.dpcore.mutants import rewired

RUN = ["run", "cz/easy", "-T", "3000", "--instances", "2", "--arms", "4"]
PARTLY = ["rows.json", "regret.csv", "regret.svg"]


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


# -- sentences are no smaller than their numbers -----------------------------------------------

EXACT = ["1/3", "0.10000004", "1e-400", "1.23456499e-6", "12345649/100000000", "1/7000000000001"]


class Promised(RunGuarantee):
    """Of any epsilon, pure or not."""

    __slots__ = ()
    stated: Any = None

    def pure(self, relative: object = None) -> Bound:
        largest = self.stated.pure().upper if isinstance(self.stated, Pure) else math.inf
        return Bound(upper=largest, method="worst", theorem="")

    def epsilon(self, delta: object, relative: object = None) -> Bound:
        exact = self.stated.pure().upper if isinstance(self.stated, Pure) else self.stated
        return Bound(upper=Fraction(exact), lower=None, method="worst", theorem="")


def sentence(stated: Any, delta: str) -> str:
    kind = type("Stated", (Promised,), {"stated": stated, "__slots__": ()})
    text = guarantee_json(kind(parts=(), assumptions=()), delta)["text"]
    return str(text).removesuffix("-DP for each user, who is new at every pull")


@pytest.mark.parametrize("text", EXACT)
def test_no_number_of_a_sentence_is_rounded_down(text: str) -> None:
    exact = Fraction(text)
    assert Fraction(sentence(Pure(exact), "1e-6")) >= exact
    epsilon, delta = sentence(exact, text).strip("()").split(", ")
    assert exact <= Fraction(epsilon) <= exact * Fraction(1002, 1000)
    assert exact <= Fraction(delta) <= exact * Fraction(1002, 1000)


def test_short_numbers_are_written_exactly_and_long_ones_upwards() -> None:
    for text in EXACT[:-1]:
        assert Fraction(written_up(Fraction(text))) == Fraction(text)
    long = Fraction(10**20 + 1, 3 * 10**20)
    assert Fraction(written_up(long)) > long
    nearest = rewired(summary.written_up, up=lambda value, digits: f"{float(value):g}")
    assert Fraction(nearest(long)) < long


# -- whose files -------------------------------------------------------------------------------


def test_a_folder_used_again_holds_the_last_run_only(bandit: Bandit) -> None:
    few = [*RUN, "--epsilon", "1", "--output", "out"]
    assert bandit(*few, "--algorithms", "dist-dp-se,cdp-se").code == 0
    mine = ["certificate-mine.json", "certificate-list.json", "notes.txt"]
    for name, text in zip(mine, ['{"schema": "mine"}', "[1]", "certificate"], strict=True):
        Path("out", name).write_text(text)
    assert bandit(*few, "--algorithms", "cdp-se").code == 0
    assert names("out") == {*PARTLY, *mine, "certificate-cdp-se-1.json"}
    answer = bandit(*RUN[:-1], "1", *few[len(RUN) :], "--algorithms", "se")  # one arm
    assert answer.err.startswith("warning: no regret.svg")
    assert names("out") == {"rows.json", "regret.csv", *mine}


def test_an_epsilon_of_many_digits_has_a_short_name(bandit: Bandit) -> None:
    long = "0." + "123456789" * 15
    answer = bandit(*RUN, "--epsilon", long, "--algorithms", "dist-dp-se", "--output", "out")
    assert answer.code == 0
    (name,) = names("out") - {*PARTLY}
    assert len(name) < 120
    assert name == certificate_name("dist-dp-se", str(Fraction(long)))
    assert name != certificate_name("dist-dp-se", str(Fraction(long + "1")))
    assert certificate_name("dist-rdp-se:s=20", "1/2") == "certificate-dist-rdp-se_s=20-1_2.json"


@pytest.mark.nightly
@pytest.mark.parametrize("closed", ["| true", "> /dev/full"])
def test_results_outlive_their_standard_output(tmp_path: Path, closed: str) -> None:
    words = [*RUN, "--algorithms", "se", "--epsilon", "1", "--output", "out", "--json"]
    (tmp_path / "start.py").write_text(MAIN)
    shell = f"{sys.executable} start.py bandit {' '.join(words)} {closed}"
    subprocess.run(shell, shell=True, cwd=tmp_path, stderr=subprocess.PIPE, timeout=90, check=False)  # noqa: S602  # the shell's redirections are what is tested
    assert json.loads((tmp_path / "out/rows.json").read_text())["schema"] == "dpcore-bandit/1"
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PARTLY)


# -- certificates ------------------------------------------------------------------------------


def test_certificates_are_of_the_first_instance_and_the_delta_asked_for() -> None:
    experiment = Experiment(
        preset="tkms/binary",
        algorithms=("cdp-se", "se"),
        epsilons=(1,),
        horizon=500,
        instances=3,
        arms=3,
        delta="1e-3",
    )
    worlds = experiment.worlds()
    found = [*results.certificates(experiment, worlds, run_cells(experiment, worlds))]
    assert [name for name, _ in found] == ["certificate-cdp-se-1.json"]
    assert json.loads(str(found[0][1]))["claims"][0]["delta"] == "1/1000"


@pytest.mark.parametrize(
    ("preset", "algorithm", "more"),
    [
        ("tkms/binary", "dist-rdp-se:s=20", {}),
        ("tkms/binary", "dist-dp-se", {"max_visits": 2}),
        ("tkms/binary", "vb-sdp-ae", {}),
        ("lzj/clients", "cdp-pe", {"arms": 12}),
        ("csb/topk", "cucb-dp", {}),
    ],
)
def test_a_cell_gives_the_certificate_of_its_run(
    preset: str, algorithm: str, more: dict[str, Any]
) -> None:
    experiment = Experiment(
        preset=preset, algorithms=(algorithm,), epsilons=(1,), horizon=400, instances=2, **more
    )
    worlds = experiment.worlds()
    cells = run_cells(experiment, worlds)
    assert [bool(cell.released) for cell in cells] == [True, False]
    run = play_task(experiment, worlds.environments[0], next(experiment.tasks()))
    ((_, text),) = results.certificates(experiment, worlds, cells)
    assert text == certificate.certificate_of(run, deltas=[experiment.delta]).text()


def test_a_missing_certificate_names_its_reason(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotDerived("a certificate of cdp-se", "parts: must hold at most 1024")

    monkeypatch.setattr(certificate, "certify_run", refused)
    answer = bandit(*RUN, "--epsilon", "1", "--algorithms", "cdp-se", "--output", str(tmp_path))
    wanted = "no theorem here gives a certificate of cdp-se: parts: must hold at most 1024"
    assert f"warning: no certificate-cdp-se-1.json: {wanted}" in answer.err


# -- pictures ----------------------------------------------------------------------------------


def line(algorithm: str, epsilon: str, mean: float) -> Line:
    return Line(
        preset="x", algorithm=algorithm, epsilon=epsilon, t=(1, 2), mean=(mean, mean), error=(0, 0)
    )


def test_what_has_no_regret_is_left_out_of_the_picture_and_said(tmp_path: Path) -> None:
    path = tmp_path / "regret.svg"
    lines = [line("se", "1", 0.0), line("se", "2", 0.5), line("cdp-se", "2", 0.0)]
    draw_results(lines, path)
    assert b"epsilon = 2" in path.read_bytes()
    assert b"epsilon = 1" not in path.read_bytes()
    assert b"cdp-se" not in path.read_bytes()
    said = [*without_regret(lines)]
    assert [words.split(" is not")[0] for words in said] == [
        "se at epsilon 1",
        "cdp-se at epsilon 2",
    ]
    with pytest.raises(InvalidParameter, match="has no regret to show"):
        draw_results(lines[:1], path)


def test_every_promise_is_made_before_the_first_run() -> None:
    both = Experiment(
        preset="cz/easy", algorithms=("se", "cdp-se"), epsilons=(1, 2), horizon=100, instances=1
    )
    told: list[int] = []
    found = summary.promises_of(both, 4, progress=told.append)
    assert [*found] == [("se", "1"), ("se", "2"), ("cdp-se", "1"), ("cdp-se", "2")]
    assert told == [1, 2, 3, 4]
