"""Fixtures: the wheel of this tree, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "-w", str(out), str(ROOT)]
    subprocess.run(words, cwd=out, check=True)
    (built,) = out.glob("*.whl")
    return built
