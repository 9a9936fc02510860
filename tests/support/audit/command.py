"""The ``dpcore`` command as a user starts it, with the audit group registered."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import dpcore.cli.app
from tests.alpha_budget import buy_alpha
from tests.support.run_command import Answer

ROOT = Path(__file__).parents[3]

# The source tree under test, whether or not a dpcore is installed elsewhere.
START = (
    "import sys\n"
    f"sys.path.insert(0, {str(ROOT)!r})\n"
    "from importlib.metadata import EntryPoint\n"
    "import dpcore.cli.app\n"
    "point = EntryPoint('audit', 'audit.cli.commands:commands', 'dpcore.commands')\n"
    "dpcore.cli.app._registered = lambda: {'audit': point}\n"
    "dpcore.cli.app.main()\n"
)

# Shared by the audits that must not refute: fewer than a hundred.
ALPHA = buy_alpha("the audit command keeps true claims", "1e-8") / 100


def arguments(*words: object) -> list[str]:
    return ["audit", *map(str, words)]


# A test run started in the background ignores SIGINT, and its children inherit this; a shell resets
# it.
HEARS_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
IGNORES_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"


def process(*words: object, cwd: Path, ctrl_c: str = HEARS_CTRL_C) -> subprocess.Popen[str]:
    """Start the command in a real process with piped streams."""
    return subprocess.Popen(
        [sys.executable, "-c", ctrl_c + START, *arguments(*words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(*words: object, cwd: Path, ctrl_c: str = HEARS_CTRL_C) -> Answer:
    """Run the command in a real process until it ends."""
    running = process(*words, cwd=cwd, ctrl_c=ctrl_c)
    out, err = running.communicate(timeout=60)
    return Answer(code=running.returncode, out=out, err=err)


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Shell:
    """The command in this process: faster, and the same code from ``dpcore.cli.app.run`` on."""

    def __init__(
        self, patch: pytest.MonkeyPatch, streams: pytest.CaptureFixture[str], *command: str
    ) -> None:
        self.patch = patch
        self.streams = streams
        self.command = command
        point = EntryPoint("audit", "audit.cli.commands:commands", "dpcore.commands")
        patch.setattr(dpcore.cli.app, "_registered", lambda: {"audit": point})

    def __call__(self, *words: object) -> Answer:
        self.streams.readouterr()
        code = dpcore.cli.app.run(arguments(*self.command, *words))
        out, err = self.streams.readouterr()
        return Answer(code=code, out=out, err=err)


def at(name: str, epsilon: object = 1, n: object = 2000, seed: int = 7) -> list[object]:
    return [
        f"targets.py:{name}", "--claim", f"epsilon={epsilon}", "--pair", 0, 1, "-n", n,
        "--seed", seed, "--alpha", ALPHA,
    ]  # fmt: skip
