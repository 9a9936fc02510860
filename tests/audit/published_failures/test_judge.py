r"""Tests of `audit.published_failures.judge` on a package built here, without a network."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audit.errors import TargetFailed
from audit.published_failures import corpus_entry, environment
from audit.published_failures.corpus_entry import Entry, Side, read_entry
from audit.published_failures.environment import (
    Environment,
    EnvironmentFailed,
    Worker,
    environments,
    suitable_python,
)
from audit.published_failures.judge import Judged, judge
from tests.alpha_budget import buy_alpha
from tests.audit.published_failures.test_corpus_entry import TEXT
from tests.support.audit.command import Shell

ALPHA = buy_alpha("the corpus judges a package made here", "1e-8") / 10

# Two-sided geometric noise: the difference of two geometric draws, exactly epsilon-DP for counts.
SOURCE = """
import math, random

def drawn():
    return math.floor(math.log(1 - random.random()) / -{epsilon})

def count(names):
    return len(names) + drawn() - drawn()

EPSILON = {epsilon}
"""
CODE = 'import leaky\nprint("said")\noutput = leaky.count'


def entry(code: str = CODE, twin: str = CODE) -> Entry:
    found = read_entry("leaky-count", TEXT)
    assert found.twin is not None
    return replace(
        found, broken=replace(found.broken, code=code), twin=replace(found.twin, code=twin)
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


def write_wheel(folder: Path, name: str, version: str, source: str, needs: str = "") -> None:
    """Write a wheel with one module; ``needs`` is a declared requirement."""
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": source,
        f"{about}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder, "leaky", "1.0", SOURCE.format(epsilon=2))
    write_wheel(folder, "leaky", "1.1", SOURCE.format(epsilon=1))
    write_wheel(folder, "needy", "1.0", "X = 1\n", needs="absent")
    return folder


@pytest.fixture(autouse=True)
def no_network(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


@pytest.fixture
def judged(cache: Path) -> Callable[[Entry], Judged]:
    def judge_it(one: Entry) -> Judged:
        return judge([one], cache=cache, keep=True, alpha=ALPHA).rows[0]

    return judge_it


def test_wrong_verdicts_are_detected(judged: Callable[[Entry], Judged]) -> None:
    one = entry()
    assert one.twin is not None
    # Swapped: the repaired package as the failure, and the failure as the twin.
    swapped = replace(one, broken=one.twin, twin=one.broken)
    found = judged(swapped)
    assert not found.right
    assert [result.right for result in found.results.values()] == [False, False]
    assert not found.missing
    # A bound above the true epsilon is as wrong as a missing one.
    assert not judged(replace(one, true=("epsilon", "1.01"), twin=None)).right


def test_the_claim_must_equal_the_one_that_the_package_computes(
    judged: Callable[[Entry], Judged],
) -> None:
    code = CODE + '\ndef claimed():\n    return f"epsilon={leaky.EPSILON}"\n'
    found = judged(entry(code=code, twin=code))
    assert found.twin is not None
    assert found.twin.right
    assert not found.broken.right
    assert found.broken.verdict is None
    assert "claims epsilon=2, but the entry states epsilon=1" in str(found.broken.error)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import absent", "No module named 'absent'"),
        ("def output(names):\n    raise ValueError('too few')", "too few"),
        ("def output(names):\n    return object()", "which JSON cannot represent"),
        ("import os\ndef output(names):\n    os._exit(3)", "wrote nothing to standard error"),
    ],
)
def test_a_failing_entry_does_not_pass(
    judged: Callable[[Entry], Judged], code: str, said: str
) -> None:
    found = judged(replace(entry(code=code), twin=None))
    assert not found.right
    assert said in str(found.broken.error)


def test_a_worker_that_does_not_answer_is_terminated(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Environment(requires=("leaky==1.0",)).make(cache)
    code = "import time\ndef output(names):\n    time.sleep(60)"
    with Worker("slow", python, code) as worker:
        assert worker.begin() is None
        with pytest.raises(TargetFailed, match=r"no answer within 0\.2 s"):
            worker.ask({"dataset": [], "n": 3, "seed": 1}, 3, "A", 0.2)
    monkeypatch.setattr(environment, "_ANSWER_SECONDS", 0.3)
    late = pytest.raises(TargetFailed, match=r"no answer within 0\.3 s; it wrote nothing")
    with Worker("slow", python, "import time\ntime.sleep(60)") as worker, late:
        worker.begin()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The recorded commands of an environment; the first one only creates an empty Python file."""
    commands: list[list[str]] = []

    def stand_in(_: str, command: list[str]) -> None:
        commands.append(command)
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()

    monkeypatch.setattr(environment, "_run", stand_in)
    return commands


def test_environments_are_kept_only_on_request(tmp_path: Path, asked: list[list[str]]) -> None:
    wanted = Environment(requires=("leaky==1.0",))
    with environments(tmp_path, keep=False) as make:
        assert make(wanted).is_file()
    assert list(tmp_path.iterdir()) == []
    with environments(tmp_path, keep=True) as make:
        python = make(wanted)
        make(wanted)
    assert len(asked) == 2 * 2
    # An environment without a marker, left by an interrupted run, is created anew.
    (wanted.folder(tmp_path) / "ready").unlink()
    python.unlink()
    with environments(tmp_path, keep=True) as make:
        assert make(wanted).is_file()
    # Existing environments are kept.
    with environments(tmp_path, keep=False) as make:
        make(wanted)
    assert wanted.python(tmp_path).is_file()
    assert len(asked) == 2 * 3


def test_an_interrupted_environment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[list[str]]
) -> None:
    whole = environment._run

    def interrupted(what: str, command: list[str]) -> None:
        whole(what, command)
        if "install" in command:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Environment(requires=("leaky==1.0",)).make(tmp_path)
    assert len(asked) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_package_is_installed_without_dependencies_on_request(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="absent"):
        Environment(requires=("needy==1.0",)).make(tmp_path)
    python = Environment(requires=("needy==1.0",), alone=True).make(tmp_path)
    with Worker("needy", python, "import needy\ndef output(names):\n    return needy.X") as worker:
        worker.begin()
        assert worker.ask({"dataset": [], "n": 2, "seed": 1}, 2, "A", 30) == ["1", "1"]


def test_an_unsupported_version_of_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFailed, match=r"needs Python 3\.9 or older"):
        suitable_python("3.9")
    assert suitable_python("3.99") == suitable_python(None)


@pytest.fixture
def command(audit: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    sound = entry()
    assert sound.twin is not None
    worse: Side = replace(sound.broken, requires=sound.twin.requires)
    gone: Side = replace(sound.broken, requires=("absent==1.0", "leaky==1.0"))
    known = (
        sound,
        replace(sound, name="leaky-misjudged", broken=worse, twin=None),
        replace(sound, name="leaky-gone", broken=gone, twin=None),
    )
    monkeypatch.setattr(corpus_entry, "entries", lambda: known)
    return audit


def test_the_command_lists_shows_and_runs(
    command: Shell, cache: Path, judged: Callable[[Entry], Judged]
) -> None:
    listed = command("corpus", "list")
    assert listed.code == 0
    assert "leaky-count" in listed.out
    document = command("corpus", "list", "--json").json
    assert (document["schema"], len(document["entries"])) == ("dpcore-corpus-list/1", 3)
    shown = command("corpus", "show", "leaky-count")
    assert "https://example.org/issues/1" in shown.out
    assert "output = leaky.count" in shown.out
    options = ["--keep", "--cache", cache, "--alpha", ALPHA]
    ran = command("corpus", "run", "leaky-count", *options, "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    assert document["schema"] == "dpcore-corpus/1"
    assert document["passed"]
    row = document["rows"][0]
    assert (row["broken"]["verdict"], row["twin"]["verdict"]) == ("refuted", "not_refuted")
    assert 1 < row["broken"]["epsilon_lower"] <= 2
    assert row["broken"]["runs"] == 4000
    again = judged(replace(entry(), twin=None))
    assert (again.right, again.broken.epsilon_lower) == (True, row["broken"]["epsilon_lower"])


def test_the_exit_code_distinguishes_wrong_verdicts_from_failures(
    command: Shell, cache: Path
) -> None:
    options = ["--keep", "--cache", cache, "--alpha", ALPHA]
    before = list(cache.iterdir())
    missing = command("corpus", "run", "leaky-gone", *options)
    assert missing.code == 3
    told = " ".join(missing.out.split())
    assert "not installed" in told
    assert "absent==1.0, leaky==1.0 could not be installed" in told
    assert "check that the package index can be reached" in told
    assert list(cache.iterdir()) == before
    wrong = command("corpus", "run", "leaky-misjudged", *options)
    assert wrong.code == 1
    assert "NOT REFUTED" in wrong.out
