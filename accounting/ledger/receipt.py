r"""A receipt: what a ledger hands out for a charge."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Receipt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    r"""A charge that is in the ledger and stays there.

    ``number`` and ``digest`` fix its place in the history: :meth:`Ledger.check` takes receipts.
    ``paid`` users were charged; ``left_out`` could not pay, and must not take part.

    ``repeated`` says that the charge was there before it was asked for: of all who ask for one
    batch, however many at once, at most one is told False. Whoever draws the noise anew at each
    start must not release on a repeated receipt. It is no part of what is acknowledged: receipts of
    one charge are equal.
    """

    batch: str
    number: int
    digest: str
    paid: int
    left_out: tuple[str, ...] = ()
    repeated: bool = field(default=False, compare=False)
