r"""The outcomes of a charge: a receipt, or an error whose message states the reason and the remedy.

The ``exit_code`` of an error is that of a command that fails with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dpcore.errors import FAILED, NEGATIVE_ANSWER, NO_ANSWER, USAGE, DpcoreError

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    r"""A charge that is permanently recorded in the ledger.

    ``number`` and ``digest`` identify the charge in the history; :meth:`Ledger.check` verifies that
    the history still contains it. ``paid`` is the number of users charged. ``left_out`` are the
    users with too little budget, who must not take part.

    ``repeated`` states that the charge existed before this request. Of all requests for one batch,
    even concurrent ones, at most one has ``repeated`` False. A program that draws fresh noise
    whenever it is started must not release anything if ``repeated`` is True. Receipts of the same
    charge are equal, even if ``repeated`` differs.

    ``value`` is the value that :meth:`Ledger.release` drew and stored with the charge; every
    request for the batch returns the same value. ``value`` is None for a charge without a release.
    """

    batch: str
    number: int
    digest: str
    paid: int
    left_out: tuple[str, ...] = ()
    repeated: bool = field(default=False, compare=False)
    value: Any = field(default=None, compare=False)


@dataclass(eq=False, repr=False)
class BudgetExhausted(DpcoreError):
    r"""A user has too little budget: no user was charged and nothing may be released.

    ``users`` are all users with too little budget, sorted by name; ``left`` maps the first few of
    these names to their remaining budgets, and ``cost`` is the cost to each user.

    >>> raise BudgetExhausted("monday", ("ada", "bob"), 5, {"ada": "1/4", "bob": "0"}, "rho=1/2")
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.BudgetExhausted: batch 'monday': 2 of 5 users have too little ...
    """

    exit_code: ClassVar[int] = NEGATIVE_ANSWER

    batch: str
    users: tuple[str, ...]
    asked: int
    left: dict[str, str]
    cost: str = ""

    def __str__(self) -> str:
        named = [f"{user} ({left})" for user, left in list(self.left.items())[:_NAMED]]
        named += ["..."] if len(self.users) > len(named) else []
        have = "has" if len(self.users) == 1 else "have"
        cost = f"the batch costs {self.cost}; " if self.cost else ""
        return (
            f"batch {self.batch!r}: {len(self.users)} of {self.asked} users {have} too little "
            f"budget left: {', '.join(named)}; {cost}nobody was charged: do not release"
        )


@dataclass(eq=False, repr=False)
class AlreadyCharged(DpcoreError):
    r"""The batch was already charged with the same users and guarantee: no budget was spent.

    ``receipt`` is the receipt of the existing charge. The caller that made this charge has drawn
    the noise, or is drawing it.

    >>> raise AlreadyCharged(Receipt(batch="monday", number=1, digest="", paid=2, repeated=True))
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.AlreadyCharged: ... already charged, so nothing was charged again: ...
    """

    exit_code: ClassVar[int] = NO_ANSWER

    receipt: Receipt

    def __str__(self) -> str:
        again = "already charged, so nothing was charged again: publish the earlier release"
        return f"batch {self.receipt.batch!r}: {again}, and do not draw new noise"


@dataclass(eq=False, repr=False)
class ValueLost(DpcoreError):
    r"""A drawn value cannot be stored: the value is lost, although the users were charged.

    Whether this error occurs may depend on the value, so the error itself reveals information about
    the value. ``receipt`` is the receipt of the charge.

    >>> raise ValueLost(Receipt(batch="monday", number=1, digest="", paid=2), "ValueError: ...")
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.ValueLost: batch 'monday': the value that was drawn cannot be ...
    """

    exit_code: ClassVar[int] = FAILED

    receipt: Receipt
    reason: str

    def __str__(self) -> str:
        return (
            f"batch {self.receipt.batch!r}: the value that was drawn cannot be stored "
            f"({self.reason}); its users were charged, so a new release needs a new name"
        )


# Positional arguments are kept in ``args``, from which a copy of an error is made.
@dataclass(eq=False, repr=False)
class _Located(DpcoreError):
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class LedgerDamaged(_Located):
    r"""The ledger is inconsistent at ``where``; a charge that depends on this place is refused.

    >>> raise LedgerDamaged("charge 3", "was edited: its digest does not match")
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.LedgerDamaged: charge 3: was edited: its digest does not match
    """

    exit_code: ClassVar[int] = FAILED


class LedgerUnavailable(_Located):
    r"""The database cannot be used, e.g. because it is missing, full, locked, moved or unreachable.

    Acknowledged charges are kept. A charge that failed with this error was made either completely
    or not at all. So charge again with the same batch, which is charged only once.

    >>> raise LedgerUnavailable("ledger.db", "database or disk is full")
    Traceback (most recent call last):
    ...
    accounting.ledger.errors.LedgerUnavailable: ledger.db: database or disk is full
    """

    exit_code: ClassVar[int] = USAGE
