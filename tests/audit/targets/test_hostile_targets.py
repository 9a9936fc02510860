"""Tests of targets that exit, hang or kill their process: the audit still sets the exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import spread
from tests.support.audit.command import ROOT
from tests.support.audit.hostile_targets import HEAD, HOSTILE, NOT_MEASURED, Hostile

# Each case runs the command in a process forked from one that has imported it; 30 separate starts
# would take a minute. Each line of standard input is a folder and a command line.
STARTS = f"""
import contextlib, ctypes, io, json, os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from importlib.metadata import EntryPoint
import audit.cli.audit_command, audit.cli.output, audit.run_layers, audit.sample_layer
import audit.sandbox.sandboxed_target
import dpcore.cli.app
point = EntryPoint("audit", "audit.cli.commands:commands", "dpcore.commands")
dpcore.cli.app._registered = lambda: {{"audit": point}}
signal.signal(signal.SIGINT, signal.default_int_handler)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans are this process's children
if sys.argv[1] == "within":  # the twin: what is audited runs within the auditor
    from audit.features.parse_feature import read_feature
    from audit.targets.target_syntax import read_target
    from audit.sandbox.sandboxed_target import Sandbox
    Sandbox.target = lambda self, text, *, seeded=True: read_target(text, seeded=seeded)
    Sandbox.feature = lambda self, text: read_feature(text)
    dpcore.cli.app._PATIENCE = 0.1
warm = "audit count --claim epsilon=1 --pair 0 1 -n 400 --layers sample --json".split()
with contextlib.redirect_stdout(io.StringIO()):
    assert dpcore.cli.app.run(warm) == 0
for line in sys.stdin:
    folder, words = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        os.setsid()
        signal.alarm(60)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["dpcore", *words]
        dpcore.cli.app.main()
        os._exit(99)
    _, status = os.waitpid(child, 0)
    # Whoever it left behind, zombies too, would now be a child of this process.
    try:
        left = os.waitpid(-1, os.WNOHANG)
        os.killpg(0, signal.SIGKILL)
    except ChildProcessError:
        print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Found:
    """The result of the audit of a case."""

    def __init__(self, case: Hostile, folder: Path, code: int) -> None:
        self.case = case
        self.code = code
        self.out = (folder / "out").read_text(errors="replace")
        self.err = (folder / "err").read_text(errors="replace")

    @property
    def wrong(self) -> str:
        """The deviation from the expected result; empty if the case ended as expected."""
        try:
            document = json.loads(self.out)
        except ValueError:
            document = None
        on_import = "on import" in self.case.name
        if self.code != self.case.code:
            found = f"exit code {self.code}"
        elif "Traceback" in self.err:
            found = "a traceback"
        elif not re.search(self.case.reason, self.err):
            found = f"another reason than {self.case.reason}"
        elif document is None and not on_import:
            found = "no document"
        elif self.code == NOT_MEASURED and document["error"] is not None:
            found = "an error"
        else:
            return ""
        return f"{self.case.name}: {found}: {self.err[-300:]}"


def audited(cases: tuple[Hostile, ...], folder: Path, *how: str) -> list[Found]:
    found = []
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, *how],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for i, case in enumerate(cases):
            place = folder / str(i)
            place.mkdir()
            (place / "f.py").write_text(HEAD + case.source)
            words = ["audit", "f.py:f", "--claim", "epsilon=1", "--pair", "0", "1", "--seed", "7",
                     "--json", "--alpha", "1e-9", "-n", "40", *case.options]  # fmt: skip
            print(json.dumps([str(place), words]), file=running.stdin, flush=True)
            code = running.stdout.readline()
            assert code, f"{case.name} left processes behind"
            found.append(Found(case, place, int(code)))
    return found


def test_an_audit_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    found = audited(tuple(spread(HOSTILE, 6)), tmp_path, "apart")
    assert not [each.wrong for each in found if each.wrong]


@pytest.mark.nightly
def test_within_the_auditor_they_are_not_held(tmp_path: Path) -> None:
    names = {"leaves", "crashes", "leaves on import", "leaves when it is shown",
             "leaves in a feature", "becomes another", "breaks the auditor"}  # fmt: skip
    found = audited(tuple(case for case in HOSTILE if case.name in names), tmp_path, "within")
    assert {each.case.name for each in found if each.wrong} == names
    assert 0 in {each.code for each in found if each.case.code}
