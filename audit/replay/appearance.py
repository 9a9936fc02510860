r"""What a reader sees of outputs beside their values: size, names, types, labels, and errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

from audit.replay.findings import Finding
from audit.replay.parts import FACETS, shown
from audit.replay.run import Both, Execution
from audit.wording.shorten import cut

_SIZE: Final = ("keys", "columns", "shape")
# What strict declares; words may come from a fair draw.
_STRICT: Final = frozenset({*_SIZE, "dtype", "index"})
_NUMBERS: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LONG: Final = 200


def appearances(pairs: Sequence[Both], *, strict: bool) -> Iterator[Finding]:
    r"""A finding for each facet that depends on the data: an error where each dataset always gave
    its own.

    Where size or names differ, what else differs follows from that and is not told.
    """
    good = [both for both in pairs if not both.failed]
    told: set[str] = set()
    for facet, means in FACETS.items():
        if told & set(_SIZE):
            return
        differ = next((both for both in good if _of(both.a, facet) != _of(both.b, facet)), None)
        if differ is None:
            continue
        kept = {_of(both.a, facet) for both in good}, {_of(both.b, facet) for both in good}
        apart = len(kept[0]) == len(kept[1]) == 1
        refutes = strict and facet in _STRICT
        if not apart and facet not in _STRICT:
            continue
        told.add(facet)
        severity: Any = "error" if apart or refutes else "note"
        words = [_either(side) for side in kept]
        yield Finding(
            kind=facet,
            severity=severity,
            refutes=refutes,
            statement=f"dataset A gives {words[0]}, dataset B gives {words[1]}"
            + ("" if facet == "shape" else f" ({means})")
            + (": that alone tells them apart" if apart else ": on one tape they differ"),
            witness=differ.witness(),
        )


def _of(run: Execution, facet: str) -> Hashable:
    return run.facets.get(facet)


def _either(side: set[Hashable]) -> str:
    return cut(" or ".join(sorted(map(shown, side))), _LONG)


def failures(pairs: Sequence[Both]) -> Iterator[Finding]:
    r"""Errors and hangs, which are outputs that are seen: worse where only one dataset has them,
    or where their type or text depends on the data.
    """
    sides = [both.a for both in pairs], [both.b for both in pairs]
    met = [Counter(run.kind for run in side if run.error is not None) for side in sides]
    seen: set[tuple[object, ...]] = set()
    for both in pairs:
        for world, run in enumerate((both.a, both.b)):
            other = (both.b, both.a)[world]
            if run.error is None:
                continue
            said, apart = _against(run, other, met[1 - world])
            about = (run.kind, said, world if apart else None)
            if about in seen:
                continue
            seen.add(about)
            yield Finding(
                kind="hangs" if run.kind == "hangs" else "raises",
                severity="error" if apart else "warning",
                statement=f"on draws of positive probability the target {run.error.reason}"
                f" (dataset {'AB'[world]}){said}",
                witness=both.witness(),
            )


def _against(run: Execution, other: Execution, met: Counter[str]) -> tuple[str, bool]:
    # What sets it apart from the other dataset, and whether that is a fault.
    if run.key == other.key:
        return "", False
    if other.error is None:
        if met[run.kind]:
            return ": the other dataset does so on other tapes", False
        return ": the other dataset does not", True
    if run.kind != other.kind:
        return f": the other dataset {other.kind}", True
    texts = [_NUMBERS.sub("{}", str(each.error)) for each in (run, other)]
    if texts[0] != texts[1]:
        return ": the text of the error depends on the data", True
    return ": the numbers in its text differ between the datasets", False


def without_end(skipped: Sequence[Both]) -> Finding:
    r"""The changed tapes on which the target ended on neither dataset."""
    reason = " ".join(sorted({both.a.error.reason for both in skipped if both.a.error}))
    return Finding(
        kind="skipped-tapes",
        severity="warning",
        statement=f"{len(skipped):,} of the changed tapes were skipped: the target ended on "
        f"neither dataset ({reason}), and nothing is known of its outputs there",
        witness=skipped[0].witness(),
    )
