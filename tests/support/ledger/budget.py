"""The budget of the ledgers under test, stated guarantees for a user, and requests."""

from __future__ import annotations

from accounting.guarantees.stated_guarantees import ZCdp
from accounting.ledger import Request
from dpcore.mechanism import Scope, Unit
from dpcore.numbers.parameter import RationalLike

PER_USER = Scope(unit=Unit.USER)
BUDGET = ZCdp(1, scope=PER_USER)


def per_user(rho: RationalLike) -> ZCdp:
    """Return a zCDP guarantee with this rho per user."""
    return ZCdp(rho, scope=PER_USER)


def wanted(users: str, price: str, batch: str, *, skip: bool = False) -> Request:
    """Return the request of a charge for each word in ``users``."""
    return Request(users=users.split(), guarantee=per_user(price), batch=batch, skip_exhausted=skip)
