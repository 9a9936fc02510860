"""Tests of `audit.targets.target`: callables, programs, noises, their outputs and datasets."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from fractions import Fraction
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit
import dpcore
from audit.errors import TargetFailed
from audit.outputs.output_parser import OutputParser, concatenate, draw_worlds, join, kind
from audit.replay.replay_both import replay
from audit.sample_layer import sample
from audit.targets.program import Program
from audit.targets.target import Block, Catalogued, NoiseAdded, Scalar, Target, Vectorised
from audit.targets.target_syntax import GROUP, as_target, provided, read_target
from dpcore import DiscreteLaplace, Rng
from dpcore.errors import InvalidParameter
from tests.support.audit.command import ALPHA, Shell
from tests.support.audit.plans import plan

RUNS = 200


def block(pair: tuple[Any, Any], runs: int = RUNS, seed: int = 7) -> Block:
    coins, mixing, a, b = np.random.SeedSequence(seed).spawn(4)
    return Block(
        pair=pair,
        worlds=draw_worlds(runs, np.random.default_rng(coins)),
        seeds=(a, b),
        mixing=mixing,
        timeout=5.0,
    )


def drawn(target: Target, pair: tuple[Any, Any] = (0, 1), seed: int = 7) -> list[Any]:
    return list(concatenate(list(target.draw(block(pair, seed=seed)))))


def worlds(seed: int = 7) -> list[bool]:
    return [bool(b) for b in block((0, 1), seed=seed).worlds]


# -- callables --------------------------------------------------------------------------------

FORMS = """
from functools import partial
def plain(dataset): return dataset
def seeded(dataset, rng): return dataset + rng.random()
def keyword(dataset, *, rng): return dataset + rng.random()
def many(dataset, n, rng): return dataset + rng.random(n)
def many_named(dataset, *, rng, n): return dataset + rng.random(n)
class Outer:
    class Inner:
        many = staticmethod(many)
bound = partial(many_named)
native = abs
"""


@pytest.fixture
def forms(tmp_path: Path) -> Path:
    (tmp_path / "forms.py").write_text(FORMS)
    return tmp_path / "forms.py"


@pytest.mark.parametrize(
    ("name", "form", "seeded"),
    [
        ("plain", Scalar, False),
        ("native", Scalar, False),
        ("seeded", Scalar, True),
        ("keyword", Scalar, True),
        ("many", Vectorised, True),
        ("many_named", Vectorised, True),
        ("bound", Vectorised, True),
        ("Outer.Inner.many", Vectorised, True),
    ],
)
def test_the_form_of_a_target_follows_from_its_signature(
    forms: Path, name: str, form: type[Target], seeded: bool
) -> None:
    target = read_target(f"{forms}:{name}")
    assert type(target) is form
    assert target.seeded is seeded
    # For every form, outputs are in run order: the integer part is the dataset.
    assert [int(output) == 1 for output in drawn(target)] == worlds()
    if seeded:  # the target is reproducible, and both datasets have their own draws
        assert drawn(target) == drawn(target)
        assert drawn(target) != drawn(target, seed=8)
        assert len(set(drawn(target, (0, 0)))) == RUNS


def test_a_target_can_import_files_beside_it_without_shadowing_libraries(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("def f(dataset): return dataset\n")
    (tmp_path / "json.py").write_text("import neighbour\nf = neighbour.f\n")
    assert drawn(read_target(f"{tmp_path / 'json.py'}:f"))[:1] == [int(worlds()[0])]
    assert "audited_json" in sys.modules
    assert sys.path[0] != str(tmp_path)
    assert not hasattr(sys.modules["json"], "neighbour")
    sys.path.remove(str(tmp_path))


def test_a_module_in_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parcel").mkdir()
    (tmp_path / "parcel/noisy_thing.py").write_text("def f(dataset): return dataset\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert isinstance(read_target("parcel.noisy_thing:f"), Scalar)
    with pytest.raises(InvalidParameter, match=r"no module named parcel\.absent"):
        read_target("parcel.absent:f")


# -- noises -----------------------------------------------------------------------------------


def test_a_noise_is_added_exactly_and_seeded_or_private() -> None:
    target = read_target("discrete-laplace:scale=1/1000")  # nonzero with probability about e^-1000
    for value in (0, 3, -(2**62), 2**80):
        assert set(drawn(target, (value, value))) == {value}
    seeded = read_target("discrete-gaussian:sigma_squared=10000")
    private = read_target("discrete-gaussian:sigma_squared=10000", seeded=False)
    assert drawn(seeded) == drawn(seeded)
    assert drawn(private) != drawn(private)
    assert isinstance(private, NoiseAdded)


# -- programs ---------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Any:
    def write(body: str, *arguments: str) -> Program:
        path = tmp_path / "program.py"
        path.write_text(
            f"#!{sys.executable}\nimport json, random, sys\nrequest = json.load(sys.stdin)\n"
            f"n, dataset = request['n'], request['dataset']\nrandom.seed(request['seed'])\n{body}\n"
        )
        path.chmod(0o755)
        target = read_target(" ".join((f"exec:{path}", *arguments)))
        assert isinstance(target, Program)
        return target

    return write


def test_a_program_answers_in_run_order_and_follows_its_seed_and_arguments(program: Any) -> None:
    target = program("for _ in range(n): print(dataset + random.random())")
    outputs = [float(line) for line in drawn(target)]
    assert [output >= 1 for output in outputs] == worlds()
    assert drawn(target) == drawn(target) != drawn(target, seed=8)
    assert len(set(outputs)) == RUNS
    target = program("for _ in range(n): print(json.dumps([dataset, sys.argv[1:]]))", "'a b'", "c")
    lines = drawn(target, ({"x": [1]}, None))
    assert set(lines) == {'[{"x": [1]}, ["a b", "c"]]', '[null, ["a b", "c"]]'}
    lines = drawn(program("sys.stdout.buffer.write(bytes([200 + dataset, 10]) * n)"))
    assert set(lines) == {"\\xc8", "\\xc9"}  # bytes that are not text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print(1)", r"wrote 1 line for n = \d+: one output per .* with dataset, n and s"),
        ("print(1, end='')", r"wrote 1 line"),
        ("for _ in range(n + 1): print(1)", r"wrote \d+ lines for n = \d+"),
        ("pass", "wrote 0 lines"),
        ("sys.exit('no such user')", "exited with 1: no such user"),
        ("sys.exit(9)", "exited with 9 and wrote nothing to standard error"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("raise KeyError('age')", r"exited with 1: .*KeyError: 'age'"),
    ],
)
def test_the_failure_of_a_program_is_described(program: Any, body: str, reason: str) -> None:
    with pytest.raises(TargetFailed, match=reason) as caught:
        drawn(program(body))
    assert caught.value.dataset == "A"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "while True: print('x' * 200)",
            r"printed more than 1,\d+ lines for n = \d+: one output per line",
        ),
        ("while True: sys.stdout.write('x' * 4096)", r"printed more than 1,048,576 bytes for n"),
        (
            "sys.stderr.write('y' * 10**8 + 'the end'); sys.exit(9)",
            r"exited with 9: \.\.\.y+the end",
        ),
    ],
)
def test_the_output_of_a_program_is_bounded(
    program: Any, body: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.targets.program._MOST_BYTES", 1 << 20)
    target = program(body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TargetFailed, match=reason):
        drawn(target)
    # In KiB: a mutant that buffers all output grows by 100 MB, or without bound.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_hanging_program_is_terminated_with_its_children(program: Any, tmp_path: Path) -> None:
    target = program(
        "import subprocess, time\n"
        f"child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    report = sample(target, plan(runs=100, timeout=1.0))
    assert report.error is not None
    assert report.error.reason.startswith("no answer within 1 s")
    assert is_gone(int((tmp_path / "child").read_text()))


def is_gone(child: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(child)], capture_output=True, text=True, check=False
    ).stdout
    return state.strip()[:1] in {"", "Z"}


LEAVES = """
import resource
import subprocess
child = subprocess.Popen(["sleep", "60"], {pipes})
open({log!r}, "a").write(f"{{child.pid}} ")
print("\\n".join("1" * n))
sys.exit({code})
"""


def test_child_processes_left_by_a_program_are_terminated(program: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "children")
    quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    drawn(program(LEAVES.format(pipes=quiet, log=log, code=0)))
    for code, how in ((0, "ended"), (3, "exited with 3 and wrote nothing to standard error")):
        target = program(LEAVES.format(pipes="", log=log, code=code))
        report = sample(target, plan(runs=100, timeout=0.7))
        assert report.error is not None
        reason = (
            f"{how}, but a process that it started kept its output open for 0.7 s; set a longer"
        )
        assert report.error.reason.startswith(reason)
    children = list(map(int, Path(log).read_text().split()))
    assert len(children) == 4
    assert all(map(is_gone, children))


def test_an_integer_with_too_many_digits_in_a_line_is_refused(program: Any) -> None:
    for line in ("7" * 5000, "[1, -" + "7" * 5000 + "]"):
        with pytest.raises(TargetFailed, match="integer of more digits than Python reads"):
            drawn(program(f"for _ in range(n): print({line!r})"))
    for line in ("7" * 4200, "x" * 5000, "[" * 5000):
        assert set(drawn(program(f"for _ in range(n): print({line!r})"))) == {line}


def test_a_program_may_ignore_its_request(tmp_path: Path) -> None:
    path = tmp_path / "deaf"
    path.write_text("#!/bin/sh\nexec <&-\nprintf 'x\\n'\n")
    path.chmod(0o755)
    with pytest.raises(TargetFailed, match="wrote 1 line"):
        drawn(read_target(f"exec:{path}"), ("y" * 10**6, 0))


def test_lines_are_parsed_as_json_only_if_all_training_lines_are_json(program: Any) -> None:
    for printed, events in (
        ("dataset", {"output <= 0", "output >= 1"}),
        ("['zero', dataset][dataset]", {"output in {'zero'}", "output in {'1'}"}),
    ):
        report = sample(program(f"for _ in range(n): print({printed})"), plan(runs=120))
        assert report.to_json()["witness"]["event"] in events


def test_runs_of_an_unfinished_block_are_kept() -> None:
    calls = iter(range(16 + 100))  # the probe makes 16

    def stops(dataset: int, rng: np.random.Generator) -> int:
        next(calls)
        return dataset + int(rng.integers(9))

    report = sample(Scalar(spelling="stops", function=stops), plan(runs=1000))
    assert report.error is not None
    assert report.error.reason.startswith("raised StopIteration")
    assert (report.runs, report.error.run) == (100, 101)


# -- outputs ----------------------------------------------------------------------------------


def test_outputs_of_one_shape_stay_an_array_and_others_keep_their_types() -> None:
    rng = np.random.default_rng(7)
    coins = np.array([True, False, True])
    stacked = join(np.array([[1, 2]]), np.array([[3, 4], [3, 4]]), coins, rng)
    assert isinstance(stacked, np.ndarray)
    assert stacked.tolist() == [[3, 4], [1, 2], [3, 4]]
    ragged = join(np.array([[1, 2]]), np.array([[3], [3]]), coins, rng)
    assert [kind(row) for row in ragged] == [f"int64 array of shape ({n},)" for n in (1, 2, 1)]
    mixed = join(np.array([1]), np.array(["a", "b"]), coins, rng)
    assert [kind(output) for output in mixed] == ["str", "int64", "str"]
    numbers = np.arange(4.0).view("i8")  # of another type than the array that has the bytes
    assert list(concatenate([numbers[:2], numbers[2:]])) == numbers.tolist()


def test_the_form_of_outputs_is_learned_from_both_datasets() -> None:
    coins = np.array([False, True] * 4)
    apart: list[Any] = [1, 1.0] * 4
    assert OutputParser.learn(apart, coins, lines=False).by_kind
    assert not OutputParser.learn([1, 1, *apart[2:]], coins, lines=False).by_kind
    assert not OutputParser.learn(apart, np.zeros(8, dtype=bool), lines=False).by_kind


def test_a_program_without_a_first_line_names_the_missing_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, interpreter in (("a.js", "node"), ("a.PY", "python3"), ("a", "INTERPRETER")):
        file = tmp_path / name
        file.write_text("console.log(1)\n")
        file.chmod(0o755)
        with pytest.raises(TargetFailed, match="it has no #! line; try ") as caught:
            drawn(read_target(f"exec:./{name} 3 'a b'"))
        words = caught.value.reason.partition("; try ")[2]
        assert shlex.split(words)[0] == f"exec:{interpreter} ./{name} 3 'a b'"


installed = pytest.mark.skipif(
    not entry_points(group=GROUP, name="bandit"), reason="dpcore is not installed: pip install -e ."
)


@installed
def test_a_bandit_is_a_target_with_its_claim_and_pair(audit: Shell) -> None:
    target = read_target("bandit:dist-dp-se,epsilon=1/2")
    assert isinstance(target, Catalogued)
    assert (target.subject.pair, target.subject.epsilon) == ((0, 1), Fraction(1, 2))
    found = audit("bandit:dist-dp-se,epsilon=1/2", "-n", 150, "--seed", 7, "--alpha", ALPHA)
    assert found.code == 0, found.err
    assert "bandit:dist-dp-se,epsilon=1/2 on epsilon=0.5" in found.out
    # The same view refutes a claim below the epsilon of the noise.
    tight = ("bandit:dist-dp-se,epsilon=4", "--claim", "epsilon=1", "-n", 150, "--seed", 7)
    assert audit(*tight).code == 1


@installed
def test_an_unknown_target_name_is_read_as_a_module() -> None:
    assert provided("json:dumps", "json", "dumps", seeded=True) is None
    for text, reason in (
        ("nobody_here:at_home", "no module named nobody_here"),
        ("bandit:no-such-algorithm,epsilon=1", "no-such-algorithm"),
    ):
        with pytest.raises(InvalidParameter, match=reason):
            read_target(text)


NOISE = DiscreteLaplace(scale=1)


def one(value: int, rng: Rng) -> int:
    return value + NOISE.sample(rng=rng)


def qualified(value: int, rng: dpcore.SeededRng) -> int:
    return value + NOISE.sample(rng=rng)


def many(value: int, n: int, rng: Rng) -> Any:
    return value + NOISE.sample(n, rng=rng)


def optional(value: int, rng: Rng | None = None) -> int:
    assert rng is not None
    return value + NOISE.sample(rng=rng)


def with_more(value: int, more: int, rng: Rng) -> int:
    return value + more + NOISE.sample(rng=rng)


class Counter:
    def __call__(self, value: int, rng: Rng) -> int:
        return value + NOISE.sample(rng=rng)


def seed_ignored(value: int, rng: Rng) -> int:
    del rng
    return value + NOISE.sample()


@pytest.mark.parametrize(
    "function",
    [one, qualified, many, seed_ignored, optional, partial(with_more, more=1), Counter()],
)
def test_a_target_annotated_with_rng_gets_a_seeded_rng(function: Any) -> None:
    target = as_target("f", function)
    assert isinstance(target, Scalar | Vectorised)
    assert target.ours
    options: Any = {"pair": (0, 1), "runs": 64, "seed": 7}
    first, again = (audit.audit(function, "epsilon=1", **options) for _ in range(2))
    assert first.error is None
    kept = function is not seed_ignored
    assert first.repeatable is (first.to_json() == again.to_json()) is kept
    unwritten = as_target("f", lambda value, rng: isinstance(rng, np.random.Generator))
    assert isinstance(unwritten, Scalar)
    assert not unwritten.ours
    assert all(drawn(unwritten))


def test_replay_passes_the_annotated_generator() -> None:
    for function in (one, many):
        report = replay(function, (0, 1), sensitivity=1, strict=True, changes=5)
        assert not [found for found in report.findings if found.severity != "note"]
        assert replay(function, (0, 3), sensitivity=1, changes=5).verdict == "refuted"
