r"""Budget ledger: a budget per user, charged before each release, in an SQL database.

ledger                  a ledger: charges, users and remaining budgets
charge_request          the names of the users, the batch, and the cost to each user
charge_or_refuse        charge a batch or refuse it, inside a transaction
transactions_and_locks  SQLite or PostgreSQL: exclusive write transactions, and who holds the lock
group_commit            concurrent charges to an SQLite file share a transaction
sqlite_file             the one location of an SQLite file, and processes that fork
hash_chain              the history of charges, the digests that chain them, and the SQL tables
verify_ledger           verify a ledger, and copy verified ledgers
errors                  the receipt of a charge, and the errors
"""

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
