"""The budget of the ledgers under test, and stated guarantees for a user."""

from __future__ import annotations

from accounting.guarantees.stated_guarantees import ZCdp
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.parameter import RationalLike

PER_USER = Scope(unit=Unit.USER)
BUDGET = ZCdp(1, scope=PER_USER)


def per_user(rho: RationalLike) -> ZCdp:
    """Return a zCDP guarantee with this rho per user."""
    return ZCdp(rho, scope=PER_USER)
