r"""The test run in two processes, for machines of two cores: ``python -m tests.halves [options]``.

Each half is a pytest run of its own, with the options given and half of the purse of alpha. What
the second one prints is shown when both have ended; the exit code is that of the first half that
failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HALVES = (
    ("accounting", "bandits", "tests/accounting", "tests/bandits", "tests/house", "tests/support"),
    ("dpcore", "audit", "tests/dpcore", "tests/audit"),
)
APART = ("__init__", "conftest")
SHARE = "PURSE_SHARE"


def halves(root: Path) -> tuple[tuple[str, ...], ...]:
    """The paths of each half: files that lie in no folder of either join the first."""
    files = (root / "tests").glob("*.py")
    loose = sorted(str(p.relative_to(root)) for p in files if p.stem not in APART)
    return ((*HALVES[0], *loose), HALVES[1])


def main(options: Sequence[str]) -> int:
    """Both halves at once."""
    environment = {**os.environ, SHARE: f"1/{len(HALVES)}"}
    first, second = (
        [sys.executable, "-m", "pytest", *options, *paths] for paths in halves(Path.cwd())
    )
    with tempfile.TemporaryFile() as said:
        other = subprocess.Popen(second, env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            code = subprocess.run(first, env=environment, check=False).returncode
            other_code = other.wait()
        finally:
            other.kill()
        said.seek(0)
        sys.stdout.buffer.write(said.read())
        sys.stdout.flush()
    return code or other_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
