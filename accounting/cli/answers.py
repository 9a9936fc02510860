r"""How the ``dpcore budget`` commands print a bound: as one document, or in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from accounting.cli.options import computed_by
from accounting.cli.releases import told
from dpcore.command.table import fact

if TYPE_CHECKING:
    from accounting.claims.bound import Bound
    from accounting.totals.compose import Composition

__all__ = ["MARGIN", "SCHEMA", "document", "line", "lines_of"]

SCHEMA: Final = "dpcore-budget/1"
MARGIN: Final = 13


def document(answer: dict[str, Any], total: Composition, found: Bound) -> dict[str, Any]:
    r"""The answer with what it is of, for ``--json``."""
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
    r"""What was composed, by which method, and what is assumed."""
    lines = [line("rounds", told(source, count)) for source, count in total.parts]
    lines.append(line("method", computed_by(found)))
    return lines + [line("assumes", reason) for reason in total.assumptions]


def line(name: str, value: str) -> str:
    r"""One fact."""
    return fact(name, value, margin=MARGIN)
