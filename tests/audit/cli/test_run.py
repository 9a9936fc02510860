"""``dpcore audit TARGET``: nothing is loaded that does not run, no run is drawn twice, and an audit
that measured too little has exit code 4.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import by_day
from tests.support.audit.command import ROOT, Shell

COUNTED = """
def count(dataset, rng):
    with open("calls", "a") as file:
        file.write("x")
    return dataset + int(rng.integers(4))
"""

PROBE = """
import sys
from dpcore.command.app import main
sys.argv = ["dpcore", "audit", *sys.argv[1:], "--json"]
try:
    main()
except SystemExit as ended:
    print(ended.code, *(name for name in sys.modules if name.split(".")[0] == "accounting"))
"""


def loaded(folder: Path, *words: object) -> list[str]:
    """The modules of accounting that an audit loads, in a fresh process."""
    (folder / "t.py").write_text(COUNTED)
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    code, *modules = run.stdout.splitlines()[-1].split()
    assert code in {"0", "1"}, run.stderr
    return modules


SAMPLED = ("t.py:count", "--claim", "epsilon=1", "--pair", 0, 1, "-n", 200, "--seed", 7)


def test_a_sampled_audit_loads_nothing_of_accounting(tmp_path: Path) -> None:
    assert loaded(tmp_path, *SAMPLED) == []


@by_day(1)
@pytest.mark.parametrize(
    "words",
    [
        ("discrete-laplace:scale=1", *SAMPLED[1:5], 1, "--seed", 7),
        ("t.py:count", "--claim", "discrete-laplace:scale=1@1", *SAMPLED[3:]),
    ],
    ids=["a known law", "a claimed curve"],
)
def test_an_audit_that_needs_accounting_is_seen_to_load_it(
    tmp_path: Path, words: tuple[object, ...]
) -> None:
    assert "accounting.release.guarantee" in loaded(tmp_path, *words)


def test_no_run_is_drawn_twice(tmp_path: Path) -> None:
    """But the 8 runs, never tested, that show whether the target keeps to its seed."""
    loaded(tmp_path, *SAMPLED)
    assert len((tmp_path / "calls").read_text()) == 200 + 2 * 8


UNMEASURED = """
def token(v, rng): return "".join(rng.choice([*"abcdefghij"], 24))
def named(share, person, rng):
    return "nothing" if rng.random() < share else person + token(0, rng)
def hardly(person, rng): return named(0.035, person, rng)
def mostly(person, rng): return named(0.6, person, rng)
def shown(person, rng): return [named(0.035, person, rng), person][rng.integers(2)]
def grouped(counts, rng):
    if isinstance(counts, int): return counts + int(rng.geometric(0.02) - rng.geometric(0.02))
    return [count + rng.laplace(0, 1) for count in counts]
def silent(person, rng): return 7 if person > 1 else int(rng.integers(4))
"""


def test_nothing_measured_is_never_green(here: Path, audit: Shell) -> None:
    (here / "t.py").write_text(UNMEASURED)

    def code(name: str, a: object, b: object, *words: object) -> int:
        options = ("--claim", "epsilon=1", "--pair", a, b, "-n", 8000, "--seed", 1)
        return audit(f"t.py:{name}", *options, *words).code

    assert code("token", 1, 1.25) == 4
    assert code("hardly", '"ada"', '"bob"') == 4
    assert code("token", 1, 1.25, "--feature", "sum") == 4
    # Less than half: but among the others, outputs that name the person have a large probability.
    assert code("mostly", '"ada"', '"bob"') == 0
    assert code("mostly", '"ada"', '"bob"', "--resolution", "0.02") == 4
    # What the measured half refutes is refuted.
    assert code("shown", '"ada"', '"bob"') == 1


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_pairs_decides_nothing(here: Path, audit: Shell, order: int) -> None:
    (here / "t.py").write_text(UNMEASURED)
    options = ("--claim", "epsilon=1", "-n", 8000, "--seed", 1, "--pairs", "p.json")
    vectors = [[0] * 5, [3] * 5]
    for pair, name, found in ((vectors, "grouped", 1), ([2, 3], "silent", 4)):
        (here / "p.json").write_text(json.dumps([[0, 1], pair][::order]))
        assert audit(f"t.py:{name}", *options).code == found


MEAN = """
def mean(dataset, n, rng): return sum(dataset) / len(dataset) + rng.laplace(0, 1, n)
"""


def test_a_bound_below_a_refuted_claim_is_explained(here: Path, audit: Shell) -> None:
    (here / "t.py").write_text(MEAN)
    pair = json.dumps([3] * 50), json.dumps([3] * 49 + [4])
    options = ("t.py:mean", "--pair", *pair, "--seed", 0, "--sequential", "--max-n", 20_000)
    why = "bound not above the refuted epsilon = 1, as it stops at the first epsilon, from 0 up"
    above = "the test of the claim says that epsilon is above 1, with 99.9% confidence"
    found = audit(*options, "--claim", "epsilon=1")
    told = " ".join(found.out.split())
    assert (found.code, "epsilon at least 0.5" in told) == (1, True)
    assert (why in told, above in told) == (True, True)
    # A bound that exceeds the claim needs no explanation.
    found = audit(*options, "--claim", "epsilon=0.1")
    assert (found.code, "not above the refuted" in found.out) == (1, False)
