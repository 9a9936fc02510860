"""Run commands as forks of a process that has loaded what they need: this saves most time."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_SECONDS = 120
LOADED = (
    "accounting.cli.budget",
    "accounting.ledger.ledger",
    "audit.cli.commands",
    "audit.run_audit",
    "audit.testing.assertions",
    "bandits.cli.run",
    "matplotlib.figure",
    "pytest",
    "scipy.stats",
)


def run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str | None] | None = None
) -> tuple[int, str]:
    """Return the exit code of ``dpcore …`` or ``pytest …`` in ``folder``, and both output streams.

    ``environment`` lists changed variables; None removes a variable.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *LOADED])
    with tempfile.NamedTemporaryFile() as printed:
        given = ([*words], folder, printed.name, dict(environment or {}))
        process = context.Process(target=_command, args=given)
        process.start()
        process.join(TIMEOUT_SECONDS)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"$ {' '.join(words)}: no end after {TIMEOUT_SECONDS} seconds")
        return process.exitcode, printed.read().decode()


def _command(
    words: list[str], folder: Path, printed: str, environment: dict[str, str | None]
) -> None:
    os.chdir(folder)
    for name, value in environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    with Path(printed).open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = words
    if words[0] == "pytest":
        import pytest

        # pytest rewrites the asserts of plugins when it loads them: ours must not be loaded yet,
        # nor its package if pytest finds the plugin by its entry point.
        named = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ
        ours = "audit.testing.pytest_plugin" if named else "audit"
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{ours}.")]:
            del sys.modules[name]
        sys.path.insert(0, str(folder))  # as python -m pytest does
        sys.exit(pytest.main(words[1:]))
    sys.path[0] = str(Path(sys.executable).parent)
    from dpcore.cli.app import main

    main()
