r"""``dpcore bandit`` in this process, and in a process of its own."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

import pytest

from tests.support.run_command import Answer, typed

ROOT: Final = Path(__file__).parents[3]

START: Final = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    f"sys.path.insert(0, {str(ROOT)!r})\n"
    "from importlib.metadata import EntryPoint\n"
    "import dpcore.cli.app\n"
    "point = EntryPoint('bandit', 'bandits.cli.commands:commands', 'dpcore.commands')\n"
    "dpcore.cli.app._registered = lambda: {'bandit': point}\n"
)
"""The tree under test, whether or not (and from wherever) a dpcore is installed."""

MAIN: Final = START + "dpcore.cli.app.main()\n"


class Bandit:
    """``dpcore bandit``, in this process."""

    def __init__(self, streams: pytest.CaptureFixture[str]) -> None:
        self.streams = streams

    def __call__(self, *words: object) -> Answer:
        return typed(self.streams, "bandit", *words)


def registered() -> dict[str, EntryPoint]:
    return {"bandit": EntryPoint("bandit", "bandits.cli.commands:commands", "dpcore.commands")}
