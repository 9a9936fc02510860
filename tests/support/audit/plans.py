"""Plans of small audits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.claims import Claim
from audit.resume import stored
from audit.runs.draw_plan import Plan
from audit.search.worst_pair_search import SearchResult


def plan(**more: Any) -> Plan:
    return Plan(**{"claim": Claim(epsilon=1), "pair": (0, 1), "seed": 7, **more})


def stored_seed(path: Path) -> int | None:
    """The seed of the audit in a state file."""
    return None if (found := stored(path)) is None else found[0]


def stored_search(path: Path) -> SearchResult | None:
    """The search result of the audit in a state file."""
    return None if (found := stored(path)) is None else found[1]
