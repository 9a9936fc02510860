r"""Format results of the commands as text and as JSON: bounds, compositions and certificates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dpcore.cli.files import check_writable, write_whole
from dpcore.cli.terminal import fact, progress_bar, show
from dpcore.numbers.rounding import down, exactly, up

if TYPE_CHECKING:
    from accounting.calibration.parameter_search import Edge
    from accounting.composition.compose import Composition
    from accounting.guarantees.bound import Bound

Fact: TypeAlias = tuple[str, str]
"""A name and its value: one line of the text output."""

SCHEMA: Final = "dpcore-budget/1"
MARGIN: Final = 13

_PROVING: Final = 600.0
"""The time limit for a certificate with evidence, in seconds."""
_DIGITS: Final = 9


def of_least(what: str, least: Edge | None) -> list[Fact]:
    r"""Labelled lines for ``least``, a result of a search for the least noise; [] for None."""
    if least is None:
        return []
    words = f"the least {what} is" if least.proven else f"this {what} suffices:"
    found = (what.rpartition(" ")[2], f"{words} {exactly(least.value)}")
    if least.beyond is None:
        return [found]
    return [found, beyond_fact("less noise", exactly(least.beyond), least, "delta")]


def beyond_fact(name: str, beyond: str, edge: Edge, quantity: str) -> Fact:
    r"""A labelled line: whether ``beyond``, the riskier value of ``edge``, fails, and its bound."""
    words = "fails" if edge.proven else "is not proven to satisfy the target"
    found = edge.found if edge.found_beyond is None else edge.found_beyond
    return name, f"{beyond} {words}: {quantity} is {between(found)}"


def write_certificate(
    path: Path | None, total: Composition, delta: Fraction, *, evidence: bool = False
) -> list[Fact]:
    r"""Write a certificate of the epsilon at ``delta`` to a file atomically, if a path is given.

    Return a line with the size of the file if ``evidence`` is True, and no line otherwise.
    """
    if path is None:
        return []
    from accounting.certificates.certify import certify
    from accounting.certificates.deadline import deadline

    check_writable("--certificate", path)
    limit = deadline(_PROVING) if evidence else nullcontext()
    with progress_bar("writing the certificate", None), limit:
        text = certify(total, deltas=[delta], evidence=evidence).text()
    write_whole("--certificate", path, text)
    return [("evidence", f"{path}: {len(text)} bytes")] if evidence else []


def document(answer: dict[str, Any], total: Composition, found: Bound) -> dict[str, Any]:
    r"""The JSON document of a command: the ``answer``, the composition, and the method."""
    return {
        "schema": SCHEMA,
        **answer,
        "rounds": total.rounds,
        "method": found.method,
        "theorem": found.theorem,
        "parts": total.to_json(),
        "assumptions": list(total.assumptions),
    }


def lines_of(total: Composition, found: Bound) -> list[str]:
    r"""Lines of text with the rounds, the method of the bound, and the assumptions."""
    rounds = [("rounds", f"{count} x {source.text}") for source, count in total.parts]
    return lines([*rounds, ("method", computed_by(found)), *assumed(total)])


def assumed(total: Composition) -> list[Fact]:
    r"""The assumptions of ``total`` as labelled lines."""
    return [("assumes", reason) for reason in total.assumptions]


def lines(facts: Iterable[Fact], margin: int = MARGIN) -> list[str]:
    r"""Format pairs (label, text) as lines, in which each text starts at column ``margin``."""
    return [fact(name, value, margin=margin) for name, value in facts]


def show_answer(
    answer: dict[str, Any],
    facts: Iterable[Fact],
    total: Composition,
    found: Bound,
    *,
    as_json: bool,
) -> None:
    r"""Print the result as JSON, or print the lines of ``facts`` and then :func:`lines_of`."""
    show(document(answer, total, found) if as_json else [*lines(facts), *lines_of(total, found)])


def between(bound: Bound) -> str:
    r"""Format a bound as text, with the lower and the upper value if both are known."""
    if bound.upper == math.inf and bound.lower == math.inf:
        return "infinite"
    if bound.upper == math.inf and not bound.lower:
        return "not bounded by any available theorem"
    if bound.lower is None:
        return f"at most {up(bound.upper, _DIGITS)}"
    if bound.lower == bound.upper and down(bound.lower, _DIGITS) == up(bound.upper, _DIGITS):
        return f"exactly {up(bound.upper, _DIGITS)}"
    return f"between {down(bound.lower, _DIGITS)} and {up(bound.upper, _DIGITS)}"


_ENGINES: Final = {
    "direct": "sums over the outputs of one release",
    "contour": "a contour integral over the total loss, enclosed from both sides",
}


def computed_by(bound: Bound) -> str:
    r"""A text with the method and the theorem of a bound."""
    engine = _ENGINES.get(bound.method)
    return f"{bound.method}{f' ({engine})' if engine else ''}: {bound.theorem}"


def exact(value: Fraction) -> float | str:
    r"""The JSON value of a number: a float whose decimals have this value, or else exact text.

    So a delta of 1e-400 does not become 0, and 1/3 does not become the nearest float.
    """
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if math.isfinite(near) and Fraction(repr(near)) == value:
        return near
    return exactly(value)
