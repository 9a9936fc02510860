"""Tests of imports: no output, no warning, no file written, no network, no heavy module."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.day_and_nightly import by_day
from tests.support.run_command import ROOT, python

# Modules that drawing noise must not load.
HEAVY = (
    "matplotlib", "sqlalchemy", "psycopg", "scipy.stats", "rich", "typer", "sklearn", "opendp",
    "diffprivlib",
)  # fmt: skip

PROBE = """
import os, sys, threading
def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
        sys.stderr.write(f"opened for writing: {args[0]}\\n")
    elif event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.system"):
        sys.stderr.write(f"{event}\\n")
sys.addaudithook(watch)
import MODULE
if threading.active_count() > 1:
    sys.stderr.write("a thread was started\\n")
HEAVY = HEAVY_MODULES
loaded = [name for name in HEAVY if name in sys.modules]
if loaded:
    sys.stderr.write(f"loaded: {loaded}\\n")
"""


def noise_of_import(module: str, heavy: tuple[str, ...], folder: Path = ROOT) -> str:
    """Return the output of a new interpreter that imports ``module``, with warnings as errors."""
    probe = PROBE.replace("HEAVY_MODULES", repr(heavy)).replace("MODULE", module)
    run = python("-B", "-W", "error", "-c", probe, folder=folder, path=folder)
    return run.stdout + run.stderr


OTHERS_HEAVY = ("matplotlib", "sqlalchemy", "mpmath", "sklearn", "opendp", "diffprivlib")
SAMPLED = "audit.cli.commands, audit.sample_layer"
# By an import that loads none of them: modules that only rarely used names need.
RARE = {
    "dpcore": ("dpcore.protocols.run_protocol", "dpcore.secure_aggregation.masked_aggregation"),
    "audit.run_audit": ("scipy.special",),  # for counts of runs
    SAMPLED: ("accounting", "pydantic", "audit.broken_mechanisms.protocols"),
}


@by_day(3)
@pytest.mark.parametrize("module", ["dpcore", "accounting", "audit.run_audit", "bandits", SAMPLED])
def test_importing_a_package_is_silent_and_light(module: str) -> None:
    heavy = (*(HEAVY if module == "dpcore" else OTHERS_HEAVY), *RARE.get(module, ()))
    assert noise_of_import(module, heavy) == ""
    assert all(importlib.util.find_spec(name) for name in RARE.get(module, ()))


LAZY = (
    "dpcore", "accounting", "accounting.interop", "accounting.ledger", "accounting.queries",
    "audit", "audit.testing", "bandits",
)  # fmt: skip


def test_every_public_name_can_be_imported_and_completed() -> None:
    code = "import {0}; print({{*{0}.__all__}} - {{*dir({0})}})"
    run = python("-c", "\n".join(map(code.format, LAZY)))
    assert run.stdout.split() == ["set()"] * len(LAZY), run.stdout + run.stderr
    for package in LAZY:
        module = importlib.import_module(package)
        assert all(hasattr(module, name) for name in module.__all__)


LOUD = """
import os, sys, threading, time
print('hello')
sys.modules['rich'] = os
open('cache.txt', 'w').close()
os.system('true')
threading.Thread(target=time.sleep, args=(.5,)).start()
"""


def test_an_import_that_is_not_silent_is_detected(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    noise = noise_of_import("loud", HEAVY, tmp_path)
    for told in ("hello", "loaded: ['rich']", "writing: cache.txt", "os.system", "thread"):
        assert told in noise
    (tmp_path / "old.py").write_text("import warnings; warnings.warn('old')")
    assert "UserWarning" in noise_of_import("old", HEAVY, tmp_path)
    (tmp_path / "quiet.py").write_text("import json\nopen('quiet.py').close()\n")
    assert noise_of_import("quiet", HEAVY, tmp_path) == ""


FIRST_CALLS = """
import sys
from audit import NAME
from dpcore import DiscreteLaplace
def count(x, n, rng): return x + rng.geometric(0.5, n) - rng.geometric(0.5, n)
noise, pairs = DiscreteLaplace(scale=6), [(0, 3)]
before = set(sys.modules)
CALL
print([name for name in sys.modules if name not in before and not name.startswith("email")])
"""


@by_day(1)
@pytest.mark.parametrize(
    ("call", "light"),
    [
        ("assert_private(noise, 'epsilon=1/2', pairs=pairs)", True),
        ("assert_private(count, 'epsilon=3', pairs=pairs, seed=1)", True),
        ("assert_fits(noise, noise, seed=1)", True),
        ("assert_sensitivity(sum, [([1], [1, 1])], 1)", True),
        ("audit(noise, 'epsilon=1/2', pair=(0, 3))", False),  # counterexample: loads its code
    ],
)
def test_the_first_call_of_an_assertion_imports_nothing(call: str, light: bool) -> None:
    # Hypothesis has a deadline of 0.2 s for each example, including the first one.
    code = FIRST_CALLS.replace("CALL", call).replace("NAME", call.partition("(")[0])
    run = python("-B", "-c", code)
    assert run.returncode == 0, run.stderr
    assert (run.stdout == "[]\n") is light
