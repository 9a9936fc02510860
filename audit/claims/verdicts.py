r"""The possible verdicts of an audit, how they are shown, and the layers that reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["EXIT_CODES", "INTERRUPTED", "STYLES", "VERDICTS", "Layer", "Verdict"]


Verdict: TypeAlias = Literal["refuted", "not_refuted", "proven", "nothing_measured"]

VERDICTS: Final[dict[Verdict | None, str]] = {
    "refuted": "REFUTED",
    "not_refuted": "NOT REFUTED AT THIS RESOLUTION",
    "proven": "PROVEN",
    "nothing_measured": "NOTHING MEASURED",
    None: "THE TARGET FAILED",
}
r"""The words that every report begins with."""

STYLES: Final[dict[Verdict | None, str]] = {
    "refuted": "bold red",
    "not_refuted": "bold yellow",
    "proven": "bold green",
    "nothing_measured": "bold magenta",
    None: "bold magenta",
}
r"""How a terminal colours them."""

EXIT_CODES: Final[dict[Verdict | None, int]] = {
    "not_refuted": 0,
    "proven": 0,
    "refuted": 1,
    None: 3,
    "nothing_measured": 4,
}

INTERRUPTED: Final = "interrupted"
r"""Why no more runs were drawn, after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    r"""One layer that ran: its method, and what its result proves under which assumption."""

    layer: Literal["exact", "fit", "replay", "sample"]
    method: str
    proves: str
