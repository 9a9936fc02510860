r"""Who has spent what: a budget for each user, charged before each release, in an SQL database."""

from accounting.ledger.check import Damage
from accounting.ledger.errors import BudgetExhausted, LedgerDamaged, LedgerUnavailable
from accounting.ledger.history import Charge, Receipt
from accounting.ledger.ledger import Ledger

__all__ = [
    "BudgetExhausted",
    "Charge",
    "Damage",
    "Ledger",
    "LedgerDamaged",
    "LedgerUnavailable",
    "Receipt",
]
