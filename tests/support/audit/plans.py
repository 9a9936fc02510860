"""Plans of small audits."""

from __future__ import annotations

from typing import Any

from audit.claims import Claim
from audit.runs.draw_plan import Plan


def plan(**more: Any) -> Plan:
    return Plan(**{"claim": Claim(epsilon=1), "pair": (0, 1), "seed": 7, **more})
