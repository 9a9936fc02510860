"""The budget that the ledgers of these tests keep, and claims for a user of it."""

from __future__ import annotations

from accounting.guarantees.stated_guarantees import ZCdp
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.parameter import RationalLike

PER_USER = Scope(unit=Unit.USER)
BUDGET = ZCdp(1, scope=PER_USER)


def per_user(rho: RationalLike) -> ZCdp:
    """rho for the whole of a user."""
    return ZCdp(rho, scope=PER_USER)
