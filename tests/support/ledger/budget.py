"""The budget that the ledgers of these tests keep."""

from __future__ import annotations

from accounting.claims.claim import ZCdp
from dpcore.mechanism import Scope, Unit

PER_USER = Scope(unit=Unit.USER)
BUDGET = ZCdp(1, scope=PER_USER)
