"""Targets that exit, hang or damage their process, with the expected end of each audit."""

from __future__ import annotations

from dataclasses import dataclass

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
