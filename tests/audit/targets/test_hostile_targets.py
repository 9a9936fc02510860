"""Tests of targets that exit, hang or kill their process: the audit still sets the exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.day_and_nightly import spread
from tests.support.audit.command import ROOT

HEAD = """
import atexit, ctypes, itertools, os, signal, subprocess, sys, threading, time
from pathlib import Path

def coin(rng):
    return int(rng.integers(2))
"""

NOT_MEASURED, FAILED = 4, 3  # too few runs to measure anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """``source`` defines f; its audit must end with ``code`` and an error matching ``reason``."""

    name: str
    source: str
    code: int = FAILED
    reason: str = ""
    options: tuple[str, ...] = ()


def call(name: str, body: str, **more: object) -> Hostile:
    """A target that executes ``body`` in its call, and would return a coin afterwards."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    source = f"def f(dataset, rng):\n{lines}    return coin(rng)\n"
    return Hostile(name=name, source=source, **more)  # type: ignore[arg-type]  # of its fields


SHORT = ("--timeout", "0.3")
GRACE = "no answer within 0.3 s, and its process had to be killed"

HOSTILE = (
    call("leaves", "os._exit(0)", reason="ended its process with exit code 0"),
    call("leaves as refuted", "os._exit(1)", reason="ended its process with exit code 1"),
    call("sys.exit", "sys.exit(0)", reason=r"called sys.exit\(0\)"),
    call("crashes", "ctypes.string_at(0)", reason="its process was killed by SIGSEGV"),
    call("aborts", "os.abort()", reason="its process was killed by SIGABRT"),
    call("kills itself", "os.kill(os.getpid(), 9)", reason="its process was killed by SIGKILL"),
    call("kills its group", "os.killpg(0, 15)", reason="its process was killed by SIGTERM"),
    call("stops itself", "os.kill(os.getpid(), signal.SIGSTOP)", reason="stopped itself"),
    call("becomes another", "os.execv('/bin/sleep', ['sleep', '1'])", reason="lost its connection"),
    call("closes all", "os.closerange(0, 512)", reason="lost its connection"),
    call("raises Ctrl-C", "raise KeyboardInterrupt", reason="raised KeyboardInterrupt at f.py"),
    call("raises GeneratorExit", "raise GeneratorExit", reason="raised GeneratorExit at f.py"),
    call("takes the alarm", "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
         reason=GRACE, options=SHORT),
    call("keeps the interpreter", "sum(itertools.repeat(1))", reason=GRACE, options=SHORT),
    Hostile(name="leaves on import", source="os._exit(0)", reason="ended its process with exit"),
    Hostile(name="crashes on import", source="ctypes.string_at(0)", reason="killed by SIGSEGV"),
    Hostile(name="raises Ctrl-C on import", source="raise KeyboardInterrupt",
            reason="raised KeyboardInterrupt at f.py:.* while it was imported"),
    Hostile(
        name="leaves when it is shown",
        source="class Out:\n    def __repr__(self): os._exit(0)\ndef f(dataset): return Out()\n",
        reason="ended its process with exit code 0",
    ),
    Hostile(
        name="leaves in a feature",
        source="def f(dataset, rng): return coin(rng)\ndef g(output): os._exit(0)\n",
        options=("--feature", "f.py:g"),
        reason="ended its process with exit code 0",
    ),
    Hostile(
        name="leaves in many runs",
        source=(
            "def f(dataset, n, rng):\n"
            "    n > 9 and os._exit(0)\n"
            "    return rng.integers(2, size=n)\n"
        ),
        reason=r"ended its process with exit code 0.* \(dataset [AB]\)",
    ),
    # Actions on the target's own process, which do not affect the audit.
    call("closes its streams", "os.closerange(0, 3)", code=NOT_MEASURED),
    call("forks and returns", "os.fork()", code=NOT_MEASURED),
    call("leaves zombies", "os.fork() or os._exit(0)", code=NOT_MEASURED),
    call("leaves children", "subprocess.Popen(['sleep', '600'])", code=NOT_MEASURED,
         options=("-n", "10")),
    call("leaves a thread", "threading.Thread(target=time.sleep, args=(600,)).start()",
         code=NOT_MEASURED, options=("-n", "10")),
    call("leaves at the end", "atexit.register(os._exit, 1)", code=NOT_MEASURED),
    call("stays at the end", "atexit.register(time.sleep, 600)", code=NOT_MEASURED,
         options=("-n", "10")),
    call("breaks the auditor", "import audit.sample_layer, json, pickle, select\n"
         "audit.sample_layer.report_of = json.dumps = json.loads = None\n"
         "select.select = os.waitpid = None\n"
         "sys.exit = os._exit = Path.cwd = None", code=NOT_MEASURED),
    Hostile(
        name="is not unpickled",
        source=(
            "class Out:\n    def __reduce__(self): return os._exit, (0,)\n"
            "def f(dataset): return Out()\n"
        ),
        code=NOT_MEASURED,
    ),
)  # fmt: skip

# Each case runs the command in a process forked from one that has imported it; 30 separate starts
# would take a minute. Each line of standard input is a folder and a command line.
STARTS = f"""
import contextlib, ctypes, io, json, os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from importlib.metadata import EntryPoint
import audit.cli.commands, audit.cli.options_and_output, audit.run_audit, audit.sample_layer
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
    found = audited(spread(HOSTILE, 4), tmp_path, "apart")
    assert [told for _, told in found.values() if told] == []


@pytest.mark.nightly
def test_without_a_sandbox_hostile_targets_break_the_audit(tmp_path: Path) -> None:
    names = {"leaves", "crashes", "leaves on import", "leaves when it is shown",
             "leaves in a feature", "becomes another", "breaks the auditor"}  # fmt: skip
    cases = [case for case in HOSTILE if case.name in names]
    found = audited(cases, tmp_path, "within")
    assert {name for name, (_, told) in found.items() if told} == names
    assert 0 in {found[case.name][0] for case in cases if case.code}
