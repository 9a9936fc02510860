"""Tests of `dpcore audit` options for several pairs, search, features, resuming and jobs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.audit_spec import AuditSpec
from audit.run_audit import Audit
from tests.support.audit.command import Shell

HALF = ["half-scale", "-n", 2000, "--seed", 7]


def test_an_extra_that_is_missing_is_named(audit: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, words, extra in (
        ("distributed", ("--scheduler", "tcp://127.0.0.1:1"), "dpcore[cluster]"),
        ("matplotlib", ("--html", "page.html"), "dpcore[plot]"),
    ):
        monkeypatch.setitem(sys.modules, missing, None)
        answer = audit(*HALF, *words)
        assert answer.code == 2, answer.err
        assert f"pip install '{extra}'" in answer.err


def test_an_option_that_needs_runs_selects_the_sample_layer() -> None:
    """The exact layer decides a noise alone, unless an option needs runs."""
    spec = AuditSpec(target="discrete-laplace:scale=1", claim="epsilon=1", pair=(0, 1))
    assert Audit(spec).layers == ("exact",)
    options: tuple[dict[str, Any], ...] = (
        {"runs": 500}, {"features": ("sign",)}, {"baselines": ("dkw",)}, {"sequential": True},
    )  # fmt: skip
    for asked in options:
        assert Audit(replace(spec, **asked)).layers == ("exact", "sample"), asked


def test_two_options_never_share_a_file(audit: Shell, here: Path) -> None:
    (here / "kept").write_text("kept")
    (here / "again").symlink_to("kept")
    for one, other in (("--output", "--html"), ("--resume", "--output"), ("--resume", "--html")):
        answer = audit(*HALF, one, "kept", other, "again")
        assert answer.code == 2
        assert f"is also given as {one}" in answer.err
        assert (here / "kept").read_text() == "kept"


def test_an_option_without_effect_is_refused(audit: Shell) -> None:
    target = ("discrete-laplace:scale=1", "--claim", "epsilon=1")
    cases: tuple[tuple[str, tuple[object, ...]], ...] = (
        *(("exact", ("--feature", "sign")), ("exact", ("--baseline", "all"))),
        *(("exact", ("--resume", "state")), ("exact", ("-n", 5)), ("exact", ("--sequential",))),
        ("fit", ("--search", "integer:low=0,high=1")),
        ("replay", ("--resolution", "1e-3")),
    )
    for layers, words in cases:
        pair = () if "--search" in words else ("--pair", 0, 1)
        answer = audit(*target, *pair, "--layers", layers, *words)
        assert answer.code == 2
        assert answer.err.startswith(f"error: {words[0]} = ")
        assert "would have no effect: it applies only to sample" in answer.err
    clash = audit(*HALF, "-j", 2, "--scheduler", "tcp://127.0.0.1:1")
    assert "--jobs = 2: applies to local processes" in clash.err


@pytest.mark.nightly
def test_a_target_that_changes_the_folder_moves_no_file(audit: Shell, here: Path) -> None:
    (here / "away").mkdir()
    (here / "moves.py").write_text(
        "import os\nimport numpy as np\n"
        "def moving(bit, n, rng):\n    os.chdir('away' if os.path.isdir('away') else '.')\n"
        "    return bit + rng.integers(0, 9, n)\n"
    )
    words = ("moves.py:moving", "--claim", "epsilon=9", "--pair", 0, 1, "-n", 500, "--seed", 1)
    audit(*words, "-o", "report.json", "--html", "page.html")
    assert sorted(path.name for path in here.iterdir() if path.suffix in {".json", ".html"}) == [
        "page.html",
        "report.json",
    ]
    assert list((here / "away").iterdir()) == []
    os.chdir(here)


def test_text_printed_by_an_output_is_not_in_the_report(audit: Shell, here: Path) -> None:
    (here / "loud.py").write_text(
        "class Loud:\n    def __init__(self, x): self.x = x\n"
        "    def __eq__(self, other): return self.x == other.x\n"
        "    def __hash__(self): print('hashed'); return hash(self.x)\n"
        "    def __repr__(self): print('shown'); return f'Loud({self.x})'\n"
        "def loud(bit, rng): return Loud(bit + int(rng.integers(3)))\n"
    )
    words = ("loud.py:loud", "--claim", "epsilon=9", "--pair", 0, 1, "-n", 100, "--seed", 1)
    answer = audit(*words, "--json", "--html", "page.html")
    assert answer.json["runs"] == 100
    assert "hashed" in answer.err


def test_a_resumed_search_tests_the_pair_that_was_found(audit: Shell, here: Path) -> None:
    """The target has randomness of its own, so a second search would find another pair."""
    (here / "own.py").write_text(
        "import random\ndef own(x):\n    return x + random.choice((-1, 0, 1, 2))\n"
    )
    words = ("own.py:own", "--claim", "epsilon=9", "-n", 4000, "--resume", "own.state")
    first = audit(*words, "--search", "integer:low=0,high=9", "--json")
    found = first.json["search"]
    assert found["runs"] + first.json["runs"] == 4000
    assert found["pair"] == first.json["pair"]
    again = audit(*words, "--search", "integer:low=0,high=9", "--json")
    assert again.code == first.code, again.err
    assert again.json["search"] == found
    assert again.json["runs_by_world"] == first.json["runs_by_world"]
    other = audit(*words, "--search", "integer:low=0,high=8", "--json")
    assert (other.code, "was started with another search" in other.err) == (2, True)
