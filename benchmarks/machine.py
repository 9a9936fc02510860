r"""Functions that all benchmarks share: the description of the machine, timing, and JSON files.

Peers take turns in one process, so that ratios of times are fair; absolute times are for the
machine that the result names. Results are written to benchmarks/results/NAME.json.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from dpcore.cli.files import write_whole

__all__ = ["AS_INSTALLED", "RESULTS", "best_seconds", "command", "interleaved", "machine", "store"]
__all__ += ["write"]

AS_INSTALLED: Final = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
r"""The environment of a timed process; Python stores the bytecode of the first run."""

_PACKAGES = (
    "dpcore",
    "numpy",
    "scipy",
    "python-flint",
    "cryptography",
    "sqlalchemy",
    "opendp",
    "diffprivlib",
    "pipeline-dp",
    "tmlt-analytics",
    "multi-freq-ldpy",
    "polars",
    "dp-accounting",
    "prv-accountant",
    "joblib",
    "jax-privacy",
)
RESULTS: Final = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    r"""The processor, its number of cores and the versions on which a figure depends."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def best_seconds(work: Callable[[], object], *, repeats: int = 5) -> float:
    r"""The least time of ``repeats`` calls, which other work on the machine disturbed least."""
    return interleaved({"": work}, repeats=repeats)[""]


def interleaved(
    works: Mapping[str, Callable[[], object]],
    *,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    r"""The least seconds of each work; works take turns, so that the load is the same for all."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            start = clock()
            work()
            best[name] = min(best[name], clock() - start)
    return best


def command(name: str) -> str:
    r"""The command line of this process, of the module ``benchmarks.NAME``."""
    # Paths of the machine are private and are not written.
    words = [re.sub(r"(^|=)/.*/", r"\1", word) for word in sys.argv[1:]]
    return " ".join([Path(sys.executable).name, "-m", f"benchmarks.{name}", *words])


def store(path: Path, document: Mapping[str, Any]) -> str:
    r"""Write the document atomically as JSON, and return its text."""
    text = json.dumps(document, indent=1) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole("--output", path, text)
    return text


def write(name: str, result: Mapping[str, Any]) -> None:
    r"""Print the result as JSON and write ``results/NAME.json`` atomically."""
    document = {"benchmark": name, "command": command(name), "machine": machine(), **result}
    sys.stdout.write(store(RESULTS / f"{name}.json", document))
