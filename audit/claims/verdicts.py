r"""The possible verdicts of an audit, and the layers that reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["INTERRUPTED", "Layer", "Verdict"]


Verdict: TypeAlias = Literal["refuted", "not_refuted", "proven", "nothing_measured"]


INTERRUPTED: Final = "interrupted"
r"""Why no more runs were drawn, after Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    r"""One layer that ran: its method, and what its result proves under which assumption."""

    layer: Literal["exact", "fit", "replay", "sample"]
    method: str
    proves: str
