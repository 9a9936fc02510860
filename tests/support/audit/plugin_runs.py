"""Run small suites under the pytest plugin; nightly, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.day_and_nightly import effort
from tests.support import forked_commands

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "audit" / "testing" / "pytest_plugin.py"
PLUGIN = "audit.testing.pytest_plugin"

HEAD = """
import numpy as np, pytest
from fractions import Fraction
def response(epsilon, bit, n, rng):  # exactly epsilon, and no audit is nearer to its level
    return np.where(rng.random(n) < 1 / (1 + np.exp(-epsilon)), bit, 1 - bit)
def kept(bit, n, rng): return response(1, bit, n, rng)
def broken(bit, n, rng): return response(3, bit, n, rng)
def uniform(bought):  # a p-value that is exactly uniform
    assert np.random.default_rng(bought.seed).random() > bought.alpha
audits = pytest.mark.dp(epsilon=1, pair=(0, 1), runs=2000)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a run of a small suite."""

    code: int
    out: str

    @property
    def line(self) -> str:
        """The summary line of the plugin."""
        (line,) = re.findall(r"^dp: .*$", self.out, re.MULTILINE)
        return str(line)


# If one of these is set, pytest prints a failure's whole message in its summary again.
OF_A_BUILD_SERVER = ("CI", "BUILD_NUMBER")


def started(folder: Path, *words: str, path: Path | None = None) -> Ran:
    places = [str(p) for p in (path, ROOT) if p is not None]
    environment = {name: os.environ[name] for name in os.environ if name not in OF_A_BUILD_SERVER}
    run = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(places), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return Ran(code=run.returncode, out=run.stdout + run.stderr)


def ran(folder: Path, body: str, *options: str, plugin: str = PLUGIN, head: str = HEAD) -> Ran:
    """Run a suite of one file with strict markers and with warnings as errors."""
    (folder / "test_suite.py").write_text(head + body)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nstrict = true\n")
    own = ("-p", plugin, *(() if plugin == PLUGIN else ("-p", f"no:{PLUGIN}")))
    words = ("-p", "no:cacheprovider", *own, *options)
    if effort(1, 2) == 2:  # nightly in a process of its own
        return started(folder, "-m", "pytest", *words)
    # Plugins of entry points are not looked up: pytest refuses one whose package is loaded already.
    given = {"COLUMNS": "300", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    code, out = forked_commands.run(
        ["pytest", *words], folder, given | dict.fromkeys(OF_A_BUILD_SERVER)
    )
    return Ran(code=code, out=out)


def mutant(folder: Path, old: str, new: str) -> str:
    """A copy of the plugin with one edit, as a plugin of its own."""
    source = SOURCE.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{old!r} must occur once"
    (folder / "mutant_plugin.py").write_text(source.replace(old, new))
    return "mutant_plugin"
