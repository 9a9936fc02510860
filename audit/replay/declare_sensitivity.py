r"""Declare sensitivities within audited code, for a replay to check.

    from audit import declare

    visits = declare(len(names), "visits", sensitivity=1)
    top = declare(clipping_bound, "clipping bound")

One person changes the first value by at most 1 and the second not at all. Outside a replay both
calls only return the value. A replay compares the declared values of the two datasets on one tape;
a larger change refutes the declaration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeVar

from audit.audit_spec import SensitivityNorm, read_norm
from audit.outputs.copies import captured
from audit.outputs.identity import identity
from audit.replay.distance import difference, numbers_in, root
from audit.replay.replay_report import Finding
from audit.replay.rng_hooks import playing
from audit.replay.tape import Draw
from dpcore.numbers.parameter import RationalLike, at_least_zero, write_rational
from dpcore.numbers.rounding import down

T = TypeVar("T")

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    r"""A value that was declared in one run, after the draws in ``flow``."""

    name: str
    value: Any
    sensitivity: Fraction
    norm: SensitivityNorm
    flow: tuple[Draw, ...]


def declare(
    value: T, name: str, *, sensitivity: RationalLike = 0, norm: SensitivityNorm = "l1"
) -> T:
    r"""Declare that one person changes ``value`` by at most ``sensitivity`` in ``norm``; return it.

    With sensitivity 0, the default, the value must be the same for all neighbouring datasets, and
    may have any type; otherwise it must consist of numbers. ``name`` is its name in findings.
    Earlier draws are the same for both datasets, so the sensitivity of a noisy value is that of its
    data.

    >>> declare([3, 4], "counts", sensitivity=1)
    [3, 4]

    Raises :class:`InvalidParameter` for a sensitivity < 0 and for an unknown norm.
    """
    exact = at_least_zero("sensitivity", sensitivity)
    read_norm("norm", norm)
    tape = playing()
    if tape is not None and len(tape.declared) < _MOST:
        kept = captured(value)
        tape.declared.append(
            Declared(name=name, value=kept, sensitivity=exact, norm=norm, flow=tuple(tape.log))
        )
    return value


def declarations(pairs: Sequence[Any]) -> Iterator[Finding]:
    r"""Find, for each name, the first tape on which a declared value changed more than declared."""
    done: set[str] = set()
    for both in pairs:
        for a, b in zip(both.a.tape.declared, both.b.tape.declared, strict=False):
            if (a.name, a.flow) != (b.name, b.flow) or a.name in done:
                continue
            change = _moved(a, b)
            if change is None:
                continue
            done.add(a.name)
            yield Finding(
                kind="declared-sensitivity" if a.sensitivity else "declared-equal",
                severity="error",
                refutes=True,
                statement=f"{a.name} {change}",
                witness=both.witness(declared=a.name, of_a=a.value, of_b=b.value),
            )


def _moved(a: Declared, b: Declared) -> str | None:
    if not a.sensitivity:
        if identity(a.value) == identity(b.value):
            return None
        return "differs between the datasets, but was declared to be the same"
    of_a, of_b = numbers_in(a.value), numbers_in(b.value)
    if of_a is None or of_b is None or len(of_a.values) != len(of_b.values):
        return (
            "does not have equally many numbers on both datasets, so its change cannot be measured"
        )
    found = difference(of_a.values, of_b.values, a.norm)
    if found is None:
        return "is not finite on one of the datasets"
    _, moved, slack = found
    power = 2 if a.norm == "l2" else 1
    if moved <= (a.sensitivity + slack) ** power:
        return None
    by = down(root(moved)[0] if power == 2 else moved, 6)
    return f"changes by {by} ({a.norm}), more than the declared {write_rational(a.sensitivity)}"
