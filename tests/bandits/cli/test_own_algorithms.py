"""Tests of user-defined policies in run, compare and plot: results, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bandits.command import Bandit

HALVING = (Path(__file__).parents[3] / "examples" / "halving.py").read_text(encoding="utf-8")
OTHERS = """
from bandits.batch import Commit, Pulls
from own import Halving
ready = Halving()
def needs(epsilon, words): return ready
def wrong(epsilon): return epsilon
def chance(epsilon, failure_probability): raise OSError(failure_probability)
def former(epsilon, confidence): raise OSError(confidence)
def refuses(epsilon): return Halving(epsilon=epsilon).privatizer.noise(-1)
class Halves(Halving):
    def observe(self, state, released):
        raise SystemExit(0)
class Unsized(Halving):
    def sizes(self, arms, horizon):
        return None
class Once(Halving):
    def sizes(self, arms, horizon):
        return iter(super().sizes(arms, horizon))
class Bare(Halving):
    privatizer = None
class Refused(Halving):
    def choose(self, state):
        return Pulls([1] * 3)
class Remembers(Halving):
    __slots__ = ("__dict__",)
    def observe(self, state, released):
        object.__setattr__(self, "before", self.__dict__.get("before", 0) + 1)
        return super().observe(state, released)
    def choose(self, state):
        if self.__dict__.get("before", 0) > 1:
            return Commit(2)
        return super().choose(state)
"""
SMALL = ("--horizon", "3000", "--instances", 2, "--arms", 3, "--epsilon", "1/2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.py").write_text(HALVING, encoding="utf-8")
    (tmp_path / "own_module.py").write_text(HALVING, encoding="utf-8")
    (tmp_path / "others.py").write_text(OTHERS, encoding="utf-8")
    return tmp_path


def test_a_user_defined_policy_is_played_compared_and_plotted(bandit: Bandit) -> None:
    names = "own.py:Halving,own_module:Halving,cdp-se"
    found = bandit("run", "cz/easy", *SMALL, "--algorithms", names, "-o", "out", "--json").json
    one, other, built_in = found["rows"]
    assert [row["algorithm"] for row in found["rows"]] == names.split(",")
    assert 0 < one["regret_per_round"] < 0.2
    assert one["guarantee"] == other["guarantee"]
    assert one["guarantee"]["pure"] == built_in["guarantee"]["pure"] == "1/2"
    alone = bandit("run", "cz/easy", *SMALL, "--algorithms", "own.py:Halving", "--json").json
    assert alone["rows"] == [one]
    assert "own.py:Halving" in bandit("compare", "out", "out").out
    assert bandit("plot", "out", "-o", "regret.svg").code == 0


def test_a_state_file_is_bound_to_the_source_of_its_policies(bandit: Bandit, folder: Path) -> None:
    begun = (*("run", "cz/easy"), *SMALL, "--algorithms", "own.py:Halving", "--resume", "state")
    assert bandit(*begun).code == 0
    assert bandit(*begun).code == 0
    (folder / "own.py").write_text(f"{HALVING}\n# changed\n", encoding="utf-8")
    changed = bandit(*begun)
    assert changed.code == 2
    assert "was started with another value of sources" in changed.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own.py", "must be own.py:NAME, where NAME is a policy"),
        ("own.py:Nobody", "the module has no Nobody"),
        ("lost.py:Policy", "there is no file lost.py"),
        ("others.py:ready", "must be a class or function with a parameter named epsilon"),
        ("others.py:needs", "has parameters without a default: words. Give each"),
        ("others.py:wrong", "is a Fraction, but must be a bandits.Policy"),
        ("others.py:refuses", "cannot create others.py:refuses"),
        ("own.py:Halving,own.py:Halving", "must be distinct"),
    ],
)
def test_other_forms_of_policies_are_refused(bandit: Bandit, name: str, said: str) -> None:
    refused = bandit("run", "cz/easy", *SMALL, "--algorithms", name)
    assert refused.code == 2
    assert refused.err.startswith("error: --algorithms = ")
    assert said in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Halves", "raised SystemExit(0) at others.py:12"),
        ("Unsized", "policy = halving: must have a method sizes() that returns a tuple of sizes"),
        ("Once", "policy = halving: must have a method sizes() that returns a tuple of sizes"),
        ("Bare", "policy = halving: must have a Privatizer, not None"),
        ("Refused", "counts = [1, 1, 1]: must be a tuple, at others.py:23"),
    ],
)
def test_an_error_of_a_user_defined_policy_names_the_policy(
    bandit: Bandit, name: str, said: str
) -> None:
    found = bandit("run", "cz/easy", *SMALL, "--algorithms", f"others.py:{name}")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"error: --algorithms = others.py:{name}: {said}")


def test_a_policy_receives_the_failure_probability_by_either_name(bandit: Bandit) -> None:
    for name in ("chance", "former"):
        words = ("--algorithms", f"others.py:{name}", "--failure-probability", "1/50")
        assert "OSError: 1/50" in bandit("run", "cz/easy", *SMALL, *words).err


def test_workers_keep_no_state_of_a_run_and_reload_policies(
    bandit: Bandit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise results would depend on the number of processes, and on an interruption.
    words = ("run", "cz/easy", *SMALL, "--json")
    alone = bandit(*words, "--algorithms", "others.py:Remembers").json["rows"]
    run = (*words, "--jobs", 2, "--algorithms")
    assert bandit(*run, "others.py:Remembers").json["rows"] == alone
    # Workers stay alive after a run, but a run in another folder does not reuse them.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(HALVING, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "other")
    assert bandit(*run, "mine.py:Halving").code == 0


def test_two_algorithms_with_one_certificate_file_are_refused(bandit: Bandit, folder: Path) -> None:
    (folder / "a").mkdir()
    for name in ("a/own.py", "a_own.py"):
        (folder / name).write_text(HALVING, encoding="utf-8")
    words = ("run", "cz/easy", *SMALL, "--algorithms", "a/own.py:Halving,a_own.py:Halving")
    answer = bandit(*words, "-o", "out")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "error: --output = out: would have a single certificate file for a/own.py:Halving at "
        "epsilon 1/2 and a_own.py:Halving at epsilon 1/2: rename one algorithm\n"
    )
    assert bandit(*words).code == 0
