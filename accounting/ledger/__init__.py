r"""The budget ledger: a privacy budget per user in an SQL database, charged before each release."""

from typing import TYPE_CHECKING

from accounting.ledger.errors import (
    AlreadyCharged,
    BudgetExhausted,
    LedgerDamaged,
    LedgerUnavailable,
    Receipt,
    ValueLost,
)
from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from accounting.ledger.charge_request import Request
    from accounting.ledger.hash_chain import Charge
    from accounting.ledger.ledger import Ledger
    from accounting.ledger.verify_ledger import Damage, adopt, backup

__all__ = [
    "AlreadyCharged",
    "BudgetExhausted",
    "Charge",
    "Damage",
    "Ledger",
    "LedgerDamaged",
    "LedgerUnavailable",
    "Receipt",
    "Request",
    "ValueLost",
    "adopt",
    "backup",
]

# The first access to one of these names imports the database.
__getattr__ = lazy_names(__name__)
