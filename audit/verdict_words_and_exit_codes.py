r"""The verdicts of audits: their words, their styles on a terminal, and their exit codes.

A result chooses its verdict; the command ``dpcore audit`` also exits with 4 if ``--resolution`` is
not reached (:mod:`audit.cli.commands`).
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from dpcore.errors import ANSWER, FAILED, NEGATIVE_ANSWER, NO_ANSWER

VerdictWord: TypeAlias = Literal["refuted", "not_refuted", "proven", "nothing_measured"]


class VerdictDisplay(NamedTuple):
    r"""The words for a verdict, their style on a terminal, and the exit code of the verdict."""

    words: str
    style: str
    exit_code: int


VERDICTS: Final[dict[VerdictWord | None, VerdictDisplay]] = {
    "refuted": VerdictDisplay("REFUTED", "bold red", NEGATIVE_ANSWER),
    "not_refuted": VerdictDisplay("NOT REFUTED AT THIS RESOLUTION", "bold yellow", ANSWER),
    "proven": VerdictDisplay("PROVEN", "bold green", ANSWER),
    "nothing_measured": VerdictDisplay("NOTHING MEASURED", "bold magenta", NO_ANSWER),
    None: VerdictDisplay("THE TARGET FAILED", "bold magenta", FAILED),
}

Cause: TypeAlias = Literal["values", "floating-point", "time", "errors"]

CAUSES: Final[dict[Cause, str]] = {
    "values": "",
    "floating-point": " (floating-point leak)",
    "time": " (time of a call)",
    "errors": " (errors reveal the dataset)",
}
r"""The causes of a refutation, in the order of display, with their names in a headline."""

_REPRESENTATION: Final = frozenset({"lowest-bit", "last-bits", "precision", "grid"})


def cause_of(feature: str | None) -> Cause:
    r"""The cause of a refutation by a test of ``feature`` (of the output itself if it is None)."""
    steps = (feature or "").split("+")
    if steps[0] == "time":
        return "time"
    return "floating-point" if steps[-1].partition(":")[0] in _REPRESENTATION else "values"


FAULTS: Final = "FAULTS FOUND"
r"""The headline if the claim is not refuted but the code has a fault."""

INTERRUPTED: Final = "interrupted"
r"""The reason why drawing ended, in a report after Ctrl-C."""

ExactVerdict: TypeAlias = Literal["proven", "refuted", "undecided", "not_refuted"]

# The headline of each verdict, its statement on the claim, and its exit code.
EXACT_VERDICTS: Final[dict[ExactVerdict, tuple[str, str, int]]] = {
    "proven": ("PROVEN", "P and Q satisfy {}", ANSWER),
    "refuted": ("REFUTED", "P and Q violate {}", NEGATIVE_ANSWER),
    "undecided": ("UNDECIDED", "{}: the enclosure still contains the claimed delta", NO_ANSWER),
    "not_refuted": (
        "NOT REFUTED", "{}: the claimed points are proven, the curve between them is not", ANSWER
    ),
}  # fmt: skip

ReplayVerdict: TypeAlias = Literal[
    "refuted", "found", "nothing_found", "nothing_measured", "not_replayable"
]

REPLAY_VERDICTS: Final[dict[ReplayVerdict, VerdictDisplay]] = {
    "refuted": VerdictDisplay("REFUTED", "bold red", NEGATIVE_ANSWER),
    "found": VerdictDisplay(FAULTS, "bold red", NEGATIVE_ANSWER),
    "nothing_found": VerdictDisplay("NOTHING FOUND BY REPLAY", "bold yellow", ANSWER),
    "not_replayable": VerdictDisplay("CANNOT BE REPLAYED", "bold magenta", FAILED),
    "nothing_measured": VerdictDisplay("NOTHING MEASURED", "bold magenta", NO_ANSWER),
}
