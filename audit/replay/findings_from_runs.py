r"""Derive the findings of a replay from its runs, in which both datasets use the same tapes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations
from typing import Any, Final

from audit.formats.shorten import distinct
from audit.outputs.rows import Cell, display_path
from audit.replay.replay_report import Finding
from audit.replay.rng_hooks import EARLY, PLAIN
from audit.replay.sensitivity import Number, numbers_in
from audit.replay.tape import Execution, PairedRuns, Seeded

_MOST_COMPARED: Final = 16


def is_label(cell: Cell) -> bool:
    r"""Whether a value within an output is a label, that is, anything but a finite number."""
    return isinstance(cell, str) or (isinstance(cell, float) and not math.isfinite(cell))


# -- control flow -------------------------------------------------------------------------


def flows(pairs: Iterable[PairedRuns]) -> Iterator[Finding]:
    r"""Find a tape on which the draws of the target depend on the data, contrary to ``strict``."""
    for both in pairs:
        if both.complete and both.a.flow != both.b.flow:
            counts = [dict(run.tape.draws) for run in (both.a, both.b)]
            yield Finding(
                kind="draws",
                severity="error",
                refutes=True,
                statement="the draws on one tape depend on the data, contrary to the declaration",
                witness=both.witness(draws_a=counts[0], draws_b=counts[1]),
            )
            return


# -- parts without noise ---------------------------------------------------------------------


def unnoised_parts(pairs: Iterable[PairedRuns]) -> Iterator[Finding]:
    r"""Find a part of the output that is the same on every tape, but differs between the datasets.

    A part is a value within the output, the difference of two numbers, or the whole output.
    """
    good = [both for both in pairs if not both.failed]
    if not good:
        return
    sides = [both.a for both in good], [both.b for both in good]
    first, other = (side[0].parts for side in sides)
    paths = [path for path in first if path in other]
    if {run.structure for run in sides[0]} == {run.structure for run in sides[1]}:
        paths = [*dict.fromkeys((*first, *other))]  # an output may be a set: paths are its members
    a, b = (_still(side, paths) for side in sides)
    for name in a:
        one, rest = a[name], b.get(name, a[name])
        if one == rest or (one is None and not is_label(rest)):
            continue
        if rest is None and not is_label(one):
            continue
        words = ["some number" if each is None else each for each in (one, rest)]
        yield Finding(
            kind="unnoised-part",
            severity="error",
            statement=f"{name} is {words[0]} for dataset A and {words[1]} for dataset B on all "
            f"{len(good):,} tapes: no draw changes it",
            witness=good[0].witness(),
        )
        return


def _still(runs: Sequence[Execution], paths: Iterable[str]) -> dict[str, Any]:
    # The parts that are equal in all runs, by name; None for a part that is a varying number.
    found: dict[str, Any] = {}
    if len({run.key for run in runs}) == 1:
        found["the whole output"] = runs[0].key
    for path in paths:
        cells = [run.parts.get(path, "absent") for run in runs]
        if len(set(map(repr, cells))) == 1:
            # repr makes nan equal to nan.
            found[display_path(path)] = repr(cells[0]) if is_label(cells[0]) else cells[0]
        elif not any(map(is_label, cells)):
            found[display_path(path)] = None
    first, *others = (numbers_in(run.output) for run in runs)
    if first is None or len(first.values) > _MOST_COMPARED:
        return found
    table = [first, *(each for each in others if each is not None and each.paths == first.paths)]
    if len(table) < len(runs):
        return found
    for i, j in combinations(range(len(first.values)), 2):
        differences = {row.values[i] - row.values[j] for row in table}
        if len(differences) == 1:
            one, other = (display_path(first.paths[place]) for place in (i, j))
            found[f"{one} minus {other}"] = differences.pop()
    return found


def within_reach(run: Execution, others: Sequence[Execution]) -> bool:
    r"""Whether ``run`` and ``others`` may be runs on the same dataset, judging from their outputs.

    The answer is yes if one of these conditions holds:

    - the output of ``run`` occurred in ``others``;
    - the output contains a label or no number, and some output in ``others`` occurred only once,
      because then unseen outputs are likely;
    - the output consists of numbers, each of them is between the smallest and the largest number at
      its position in ``others``, and all these numbers are integers;
    - as before, but not all numbers are integers; instead, the numbers at each position lie on one
      lattice, and the outputs in ``others`` occurred twice or more on average.

    The answer is a heuristic, not a proof.
    """
    counts = Counter(other.key for other in others if other.error is None)
    if run.key in counts:
        return True
    own = numbers_in(run.output)
    if own is None or own.labels:
        return 1 in counts.values()
    found = {other.key: numbers_in(other.output) for other in others if other.error is None}
    rows = [row.values for row in found.values() if row is not None and own.comparable(row)]
    floats = [x for x in chain(own.values, *rows) if isinstance(x, float)]
    if not rows or not all(map(math.isfinite, floats)):
        return False
    whole = all(x.is_integer() for x in floats)
    if not whole and 2 * len(counts) > counts.total():
        return False
    return all(
        min(column) <= x <= max(column) and (whole or _on_lattice(x, column))
        for x, column in zip(own.values, zip(*rows, strict=True), strict=True)
    )


def _on_lattice(x: Number, column: Sequence[Number]) -> bool:
    # Whether x is exactly a value of the column plus a multiple of the common step of the values.
    unit = math.lcm(*(Fraction(y).denominator for y in (x, *column)))
    values = [int(Fraction(y) * unit) for y in column]
    step = math.gcd(*(y - values[0] for y in values))
    distance = int(Fraction(x) * unit) - values[0]
    return distance % step == 0 if step else distance == 0


# -- sources of randomness -------------------------------------------------------------------


def seeds(
    constants: Iterable[Seeded], runs: Sequence[Execution], again: Execution
) -> Iterator[Finding]:
    r"""Find seeds that are the same on all tapes, used twice in a run, or not from the tape.

    The seeds ``constants`` occur on all tapes. ``again`` is a second run on the first tape.
    """
    fixed = sorted(f"{kind} with seed {seed!r}" for kind, seed in constants)
    if fixed:
        only = not any(run.flow for run in runs)
        yield Finding(
            kind="fixed-seed",
            severity="error" if only else "warning",
            statement=f"every run uses {', '.join(fixed)}"
            + (": no other source is used, so anyone can reproduce the noise" if only else ""),
        )
    for run in runs:
        twice = [seed for seed, count in Counter(run.tape.seeds).items() if count > 1]
        if twice:
            yield Finding(
                kind="shared-seed",
                severity="warning",
                statement=f"two generators in one run start from the same seed "
                f"({twice[0].kind}): their draws are the same",
            )
            break
    if runs and runs[0].tape.seeds != again.tape.seeds:
        yield Finding(
            kind="outside-seed",
            severity="warning",
            statement=(
                "a seed does not come from a source of randomness, but for example from a clock: "
                "it may be guessable"
            ),
        )


def sources(runs: Sequence[Execution]) -> Iterator[Finding]:
    r"""Find draws from generators that are not cryptographic or were created before the replay."""
    met: set[str] = set()
    for run in runs:
        met |= PLAIN & run.tape.met
        met |= {
            kind
            for kind in PLAIN
            for source in run.tape.draws
            if source == kind or source.startswith((f"{kind} ", f"{kind},"))
        }
    if met:
        yield Finding(
            kind="not-cryptographic",
            severity="warning",
            statement=f"the target draws from {', '.join(sorted(met))}, not from a cryptographic "
            "source: outputs reveal the state of the generator, and so all noise; use SystemRng, "
            "secrets or os.urandom",
        )
    made = sorted({s for run in runs for s in run.tape.draws if EARLY in s})
    if made:
        yield Finding(
            kind="made-early",
            severity="warning",
            statement=f"the target draws from {'; '.join(made)}: its seed may be a constant",
        )


_NUMBERS: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LONG: Final = 200


def appearances(pairs: Sequence[PairedRuns], *, strict: bool) -> Iterator[Finding]:
    r"""Find a tape on which the structure of the output depends on the data.

    The finding is an error if ``strict`` is declared. It is also an error if each dataset has the
    same structure on all tapes, and the two structures differ.
    """
    good = [both for both in pairs if not both.failed]
    differ = next((both for both in good if both.a.structure != both.b.structure), None)
    if differ is None:
        return
    kept = {both.a.structure for both in good}, {both.b.structure for both in good}
    apart = len(kept[0]) == len(kept[1]) == 1
    one, other = distinct([differ.a.structure, differ.b.structure], _LONG)
    yield Finding(
        kind="structure",
        severity="error" if apart or strict else "note",
        refutes=strict,
        statement=f"dataset A gives {one}, dataset B gives {other}"
        + (": the structure reveals the dataset" if apart else ": they differ on this tape"),
        witness=differ.witness(),
    )


def failures(pairs: Sequence[PairedRuns]) -> Iterator[Finding]:
    r"""Find exceptions and timeouts, which a recipient sees like an output.

    A failure is a fault if it occurs on only one dataset, or if its type or its text (except for
    numbers in the text) depends on the data.
    """
    sides = [both.a for both in pairs], [both.b for both in pairs]
    met = [Counter(run.kind for run in side if run.error is not None) for side in sides]
    seen: set[tuple[object, ...]] = set()
    for both in pairs:
        for world, run in enumerate((both.a, both.b)):
            other = (both.b, both.a)[world]
            if run.error is None:
                continue
            detail, apart = _against(run, other, met[1 - world])
            about = (run.kind, detail, world if apart else None)
            if about in seen:
                continue
            seen.add(about)
            yield Finding(
                kind="hangs" if run.kind == "hangs" else "raises",
                severity="error" if apart else "warning",
                statement=f"on draws of positive probability the target {run.error.reason}"
                f" (dataset {'AB'[world]}){detail}",
                witness=both.witness(),
            )


def _against(run: Execution, other: Execution, met: Counter[str]) -> tuple[str, bool]:
    # How a failure differs from the run on the other dataset, and whether the difference is a
    # fault; ``met`` counts the failures on the other dataset.
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
    return ": the numbers in the error text differ between the datasets", False


def without_end(skipped: Sequence[PairedRuns]) -> Finding:
    r"""The warning that changed tapes were skipped because the time limit ended both runs."""
    reason = " ".join(sorted({both.a.error.reason for both in skipped if both.a.error}))
    return Finding(
        kind="skipped-tapes",
        severity="warning",
        statement=(
            f"{len(skipped):,} of the changed tapes were skipped: the target did not end on "
            f"either dataset ({reason}), so its outputs there are unknown"
        ),
        witness=skipped[0].witness(),
    )
