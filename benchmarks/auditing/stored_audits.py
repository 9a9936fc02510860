"""Run about 200 audits with fixed seeds and store verdicts, bounds and blind spots as JSON.

``python -m benchmarks.auditing.stored_audits FILE`` runs them (a few minutes, one process) and
writes FILE; ``... FILE OTHER`` then compares it with a file of another version: verdicts must be
equal, and bounds within 3%. All audits have alpha = 0.05. The broken mechanism and the correct twin
of every entry of the catalogue are audited at their own claim with a fixed number of runs, and the
broken ones also sequentially; some are also audited at a claimed curve, at other claims, with
several features, or on several pairs.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from audit import AuditReport, audit
from audit.broken_mechanisms import ENTRIES, Layer

__all__ = ["compare", "main", "stored"]

ALPHA: Final = "0.05"
_RUNS: Final = 4_000
_MOST_WATCHED: Final = 6_000
_WITHIN: Final = 0.03


def _asked() -> Iterator[tuple[str, dict[str, Any]]]:
    # Each audit with a descriptive name.
    for entry in ENTRIES:
        if entry.layer is Layer.TIME:
            continue  # the time of a call is not repeatable
        for subject in (entry, entry.twin):
            yield subject.name, {"target": subject.name, "runs": _RUNS}
        yield (
            f"{entry.name} watched",
            {"target": entry.name, "runs": _MOST_WATCHED, "sequential": True},
        )
        if entry.curve is not None:
            yield f"{entry.name} curve", {
                "target": entry.name, "runs": _RUNS, "claim": entry.curve,
            }  # fmt: skip
            yield (
                f"{entry.name} curve watched",
                {"target": entry.name, "runs": _RUNS, "claim": entry.curve, "sequential": True},
            )
    several = ("half-scale", "one-sided", "noisy-max-value", "classical-gaussian", "inverted-odds",
               "float-laplace")  # fmt: skip
    for name in several:
        for claim in ("epsilon=0.5", "epsilon=3", "epsilon=1,delta=0.01", "epsilon=0,delta=0.2"):
            for sequential in (False, True):
                yield f"{name} {claim} sequential={sequential}", {
                    "target": name, "claim": claim, "runs": _RUNS, "sequential": sequential,
                }  # fmt: skip
    for sequential in (False, True):
        yield f"two pairs sequential={sequential}", {
            "target": "half-scale", "pairs": ((0, 0), (0, 1)), "runs": _RUNS,
            "sequential": sequential,
        }  # fmt: skip
        yield f"features sequential={sequential}", {
            "target": "half-scale", "features": ("identity", "sign", "length"), "runs": _RUNS,
            "sequential": sequential,
        }  # fmt: skip


def stored() -> dict[str, dict[str, Any]]:
    r"""The verdict, bound and evidence of each audit, by name."""
    return {
        name: _of(audit(**asked, layers="sample", alpha=ALPHA, seed=1 + i, timeout=None))
        for i, (name, asked) in enumerate(dict(_asked()).items())
    }


def _of(report: AuditReport) -> dict[str, Any]:
    witness = report.witness
    return {
        "verdict": report.verdict,
        "epsilon_lower": report.epsilon_lower,
        "p_value": report.p_value,
        "e_value": report.e_value,
        "resolution": report.resolution if math.isfinite(report.resolution) else None,
        "runs": report.runs,
        "witness": None if witness is None else witness.event,
        "bounds": [row.epsilon_lower for row in report.outcomes],
        "error": None if report.error is None else str(report.error),
    }


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    r"""One line for each common audit whose verdict differs or whose bound changed by over 3%.

    >>> row = {"verdict": "refuted", "epsilon_lower": 1.0}
    >>> compare({"x": row}, {"x": row}), compare({"x": row}, {"x": {**row, "epsilon_lower": 1.1}})
    ([], ['x: epsilon_lower 1.1 -> 1.0'])
    """
    found = []
    for name in ours.keys() & theirs.keys():
        new, old = ours[name], theirs[name]
        if new["verdict"] != old["verdict"]:
            found.append(f"{name}: verdict {old['verdict']} -> {new['verdict']}")
        low, high = sorted((new["epsilon_lower"], old["epsilon_lower"]))
        if high - low > _WITHIN * high:
            found.append(f"{name}: epsilon_lower {old['epsilon_lower']} -> {new['epsilon_lower']}")
    return sorted(found)


def main(arguments: list[str]) -> int:
    r"""Run the audits, and with OTHER compare; return 1 if the two versions differ."""
    path = Path(arguments[0])
    if len(arguments) == 1:
        path.write_text(json.dumps(stored(), indent=1))
        return 0
    ours, theirs = (json.loads(Path(name).read_text()) for name in arguments[:2])
    differences = compare(ours, theirs)
    same = sum(ours[name] == theirs.get(name) for name in ours)
    print(f"{len(ours)} and {len(theirs)} audits, {same} equal in every figure")
    print("\n".join(differences))
    return bool(differences)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
