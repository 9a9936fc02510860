"""Tests of results folders: foreign files are never replaced; all results are of one run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bandits.experiments import results, runner
from bandits.experiments.experiment import Experiment
from bandits.experiments.results import refuse_foreign, refuse_inputs, remove_earlier
from bandits.experiments.runner import play_task
from bandits.play import Run
from dpcore.cli.files import write_whole
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.command import Bandit
from tests.support.dpcore.mutants import rewired

RUN = ["run", "cz/easy", "-T", "1000", "--instances", "2", "--arms", "3", "--epsilon", "1"]
CERTIFICATE = "certificate-cdp-se-1.json"
RESULTS = ["rows.json", "regret.csv", "regret.svg", CERTIFICATE]


@pytest.fixture(autouse=True)
def _stand_in_for_the_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    """By day the plot consists of its title; tests of the command draw it."""

    def titled(lines: list[results.PlotLine], path: Path, *_: object) -> list[str]:
        write_whole("--output", path, results.title_of(lines[0].preset, lines[0].epsilon))
        return []

    if effort(1, 2) == 1:
        monkeypatch.setattr(results, "draw_results", titled)


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def filled(bandit: Bandit, algorithms: str = "cdp-se") -> dict[str, bytes]:
    answer = bandit(*RUN, "--algorithms", algorithms, "--output", "out")
    assert answer.code == 0, answer.err
    return contents("out")


@pytest.mark.usefixtures("never_played")
@pytest.mark.parametrize("name", ["rows.json", CERTIFICATE])
@pytest.mark.parametrize("option", ["--data", "--resume"])
def test_no_run_overwrites_its_input(bandit: Bandit, option: str, name: str) -> None:
    Path(name).write_text("mine\n")
    Path("d").symlink_to(".")
    Path("link").symlink_to(name)
    words = [*RUN, "--algorithms", "cdp-se"] if option == "--resume" else ["run", "obd"]
    for folder, path in (
        (".", name),
        ("d", f"./{name}"),
        ("d", "link"),
        (".", Path(name).absolute()),
    ):
        answer = bandit(*words, "--output", folder, option, path)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith(f"error: {option} = ")
        assert answer.err.endswith(": would be overwritten by --output\n")
        assert Path(name).read_text() == "mine\n"
    assert sorted(path.name for path in Path().iterdir()) == sorted(["d", "link", name])


@pytest.mark.usefixtures("never_played")
@pytest.mark.parametrize("name", RESULTS)
def test_a_state_file_is_refused_in_the_place_of_results(bandit: Bandit, name: str) -> None:
    for folder in ("new", "."):
        place = str(Path(folder, name))
        answer = bandit(*RUN, "--algorithms", "cdp-se", "-o", folder, "--resume", place)
        assert answer.err == f"error: --resume = {place}: would be overwritten by --output\n"
    assert list(Path().iterdir()) == []


def test_one_file_cannot_be_both_data_and_state(bandit: Bandit) -> None:
    Path("all.csv").write_text("item_id,click\n")
    os.link("all.csv", "other")
    for path in ("all.csv", "other"):
        answer = bandit("run", "obd", "--data", "all.csv", "--resume", path)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == f"error: --resume = {path}: is already the file of --data\n"
    assert Path("all.csv").read_text() == "item_id,click\n"


def test_other_files_of_the_folder_may_be_read(tmp_path: Path) -> None:
    inputs = {"--data": tmp_path / "all.csv", "--resume": tmp_path / "state"}
    refuse_inputs(tmp_path, inputs)
    refuse_inputs(None, {"--data": tmp_path / "regret.csv", "--resume": None})
    blind = rewired(refuse_inputs, _same=lambda one, other: one == other)
    (tmp_path / "regret.csv").touch()
    (tmp_path / "all.csv").symlink_to("regret.csv")
    blind(tmp_path, inputs)
    with pytest.raises(InvalidParameter, match="would be overwritten by --output"):
        refuse_inputs(tmp_path, inputs)


MINE = {
    "rows.json": '{"schema": "notes"}',
    "regret.csv": "day,regret\n1,2\n",
    "regret.svg": "<svg/>",
    CERTIFICATE: '{"schema": "mine"}',
}


def refused_to_replace(bandit: Bandit, name: str) -> None:
    before = contents("out")
    answer = bandit(*RUN, "--algorithms", "cdp-se", "--output", "out", "--resume", "state")
    assert (answer.code, answer.out) == (2, "")
    said = f"error: --output = out/{name}: is not a file of dpcore bandit run"
    assert answer.err.startswith(said)
    assert contents("out") == before
    assert not Path("state").exists()


@pytest.mark.usefixtures("never_played")
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("text", [None, "[]"])
def test_foreign_files_are_not_replaced(bandit: Bandit, name: str, text: str | None) -> None:
    Path("out").mkdir()
    Path("out", name).write_text(MINE[name] if text is None else text)
    refused_to_replace(bandit, name)


def test_foreign_files_beside_results_are_not_replaced(bandit: Bandit) -> None:
    for name, ours in filled(bandit).items():
        Path("out", name).write_text(MINE[name])
        refused_to_replace(bandit, name)
        Path("out", name).write_bytes(ours)


def test_a_file_created_during_a_run_is_not_replaced(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(*args: Any) -> Run:
        Path("out/regret.csv").write_text(MINE["regret.csv"])
        return play_task(*args)

    monkeypatch.setattr(runner, "play_task", played)
    answer = bandit(*RUN, "--algorithms", "se", "--output", "out", "--json")
    assert answer.code == 2
    assert answer.json["algorithms"] == ["se"]
    assert answer.err.startswith("error: --output = out/regret.csv: is not a file of")
    assert contents("out") == {"regret.csv": MINE["regret.csv"].encode()}


def test_only_certificates_named_by_the_old_record_are_removed(bandit: Bandit) -> None:
    kept = filled(bandit)[CERTIFICATE]
    for name in ("certificate-KEEP.json", "certificate-cdp-se-2.json"):
        Path("out", name).write_bytes(kept)
    filled(bandit, "se")
    assert {name: data for name, data in contents("out").items() if "cert" in name} == {
        "certificate-KEEP.json": kept,
        "certificate-cdp-se-2.json": kept,
    }
    answer = bandit(*RUN[:-1], "2", "--algorithms", "cdp-se", "--output", "out")
    assert answer.err.startswith(
        "error: --output = out/certificate-cdp-se-2.json: is not a file of"
    )
    takes = rewired(
        remove_earlier, _certified=lambda folder, _: sorted(folder.glob("certificate-*.json"))
    )
    Path("out", CERTIFICATE).write_bytes(kept)
    takes(Path("out"))
    assert contents("out") == {}


def test_the_ownership_of_each_file_is_checked(bandit: Bandit) -> None:
    filled(bandit)
    one = Experiment(
        preset="cz/easy", algorithms=("cdp-se",), epsilons=(1,), horizon=1000, instances=2
    )
    picture = Path("out/regret.svg")
    refuse_foreign(Path("out"), one)
    picture.write_text("<svg>cz/hard, epsilon = 1</svg>")
    with pytest.raises(InvalidParameter, match=r"out/regret\.svg: is not a file of"):
        refuse_foreign(Path("out"), one)
    rewired(refuse_foreign, _shows=lambda place, record: True)(Path("out"), one)
    picture.unlink()
    picture.symlink_to("nowhere")
    with pytest.raises(InvalidParameter, match=r"out/regret\.svg: is not a file of"):
        refuse_foreign(Path("out"), one)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException) -> None:
    def fails(*args: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(f"bandits.experiments.{name}", fails)


FULL = InvalidParameter("--output", "out", "No space left on device")
STEPS = ["results.write_csv", "results.draw_results"]


@by_day(1)
@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_fails_to_write_leaves_no_mixed_record(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    filled(bandit)
    with monkeypatch.context() as broken:
        failing(broken, step, FULL)
        answer = bandit(*RUN, "--algorithms", "se", "-o", "out", "--json")
    assert answer.code == 2
    assert answer.json["algorithms"] == ["se"]
    assert not {"rows.json", CERTIFICATE} & set(contents("out"))
    said = "out: is incomplete: it has no rows.json, which dpcore bandit run --output writes last\n"
    answer = bandit("plot", "out", "-o", "new.svg")
    assert (answer.code, answer.out, answer.err) == (2, "", f"error: SOURCE = {said}")
    assert bandit("compare", "out", "out").err == f"error: A = {said}"
    # The next run removes the files that the failed run left.
    assert set(filled(bandit, "se")) == {"rows.json", "regret.csv", "regret.svg"}


def test_rows_are_deleted_first_and_written_last(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    unlink = Path.unlink

    def noted(place: Path, missing_ok: bool = False) -> None:
        if place.parent.name == "out" and not place.name.startswith("."):
            removed.append(place.name)
        unlink(place, missing_ok=missing_ok)

    filled(bandit)
    written: list[str] = []
    replace = Path.replace

    def told(place: Path, target: Path) -> Path:
        written.append(target.name)
        return replace(place, target)

    monkeypatch.setattr(Path, "unlink", noted)
    monkeypatch.setattr(Path, "replace", told)
    filled(bandit)
    assert removed == ["rows.json", CERTIFICATE, "regret.svg", "regret.csv"]
    assert written == ["regret.csv", CERTIFICATE, "regret.svg", "rows.json"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("runner.play_task", "no result"),
        (
            "results.write_csv",
            "the result was being written; only a folder with rows.json is complete",
        ),
    ],
)
def test_ctrl_c_is_reported_with_what_exists(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch, step: str, said: str
) -> None:
    failing(monkeypatch, step, KeyboardInterrupt())
    answer = bandit(*RUN, "--algorithms", "se", "--output", "out", "--resume", "state")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err == f"interrupted: {said}; continue with --resume state\n"
