r"""The possible verdicts of an audit, how they are shown, and the layers that reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

VerdictWord: TypeAlias = Literal["refuted", "not_refuted", "proven", "nothing_measured"]


class Shown(NamedTuple):
    r"""The words that a report begins with, their colour on a terminal, and the exit code."""

    words: str
    style: str
    exit_code: int


VERDICTS: Final[dict[VerdictWord | None, Shown]] = {
    "refuted": Shown("REFUTED", "bold red", 1),
    "not_refuted": Shown("NOT REFUTED AT THIS RESOLUTION", "bold yellow", 0),
    "proven": Shown("PROVEN", "bold green", 0),
    "nothing_measured": Shown("NOTHING MEASURED", "bold magenta", 4),
    None: Shown("THE TARGET FAILED", "bold magenta", 3),
}

Cause: TypeAlias = Literal["values", "floating-point", "time", "errors"]

CAUSES: Final[dict[Cause, str]] = {
    "values": "",
    "floating-point": " (floating-point leak)",
    "time": " (time of a call)",
    "errors": " (errors reveal the dataset)",
}
r"""What refutes a claim, first what is shown first, and how a headline names it."""

_REPRESENTATION: Final = frozenset({"lowest-bit", "last-bits", "precision", "grid"})


def cause_of(feature: str | None) -> Cause:
    r"""What a refutation through a feature is about; ``feature`` is None for the output itself.

    >>> cause_of("identity"), cause_of("sum+lowest-bit"), cause_of("time+round:-2")
    ('values', 'floating-point', 'time')
    """
    steps = (feature or "").split("+")
    if steps[0] == "time":
        return "time"
    return "floating-point" if steps[-1].partition(":")[0] in _REPRESENTATION else "values"


INTERRUPTED: Final = "interrupted"
r"""Why no more runs were drawn, after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    r"""One layer that ran: its method, and what its result proves under which assumption."""

    layer: Literal["exact", "fit", "replay", "sample"]
    method: str
    proves: str
