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


def wrong(case: Hostile, folder: Path, code: int) -> str:
    """The deviation from the expected result; empty if the case ended as expected."""
    out, err = ((folder / name).read_text(errors="replace") for name in ("out", "err"))
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if code != case.code:
        found = f"exit code {code}"
    elif "Traceback" in err:
        found = "a traceback"
    elif not re.search(case.reason, err):
        found = f"another reason than {case.reason}"
    elif document is None and "on import" not in case.name:
        found = "no document"
    elif code == NOT_MEASURED and document["error"] is not None:
        found = "an error"
    else:
        return ""
    return f"{case.name}: {found}: {err[-300:]}"


def audited(cases: list[Hostile], folder: Path, *how: str) -> dict[str, tuple[int, str]]:
    """The exit code of each case, and its deviation."""
    found = {}
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
            found[case.name] = int(code), wrong(case, place, int(code))
    return found


def test_an_audit_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    found = audited(spread(HOSTILE, 6), tmp_path, "apart")
    assert [told for _, told in found.values() if told] == []


@pytest.mark.nightly
def test_within_the_auditor_they_are_not_held(tmp_path: Path) -> None:
    names = {"leaves", "crashes", "leaves on import", "leaves when it is shown",
             "leaves in a feature", "becomes another", "breaks the auditor"}  # fmt: skip
    cases = [case for case in HOSTILE if case.name in names]
    found = audited(cases, tmp_path, "within")
    assert {name for name, (_, told) in found.items() if told} == names
    assert 0 in {found[case.name][0] for case in cases if case.code}
