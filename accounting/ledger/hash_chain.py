r"""The history of a ledger: charges, and the digests that chain them.

The digest of a charge is SHA-256 of the charge, the charged users, the users left out, and the
digest of the previous charge.
Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from accounting.ledger.errors import LedgerDamaged

HISTORY: Final = 1
"""The format of the chain, as part of each digest. Receipts outlive the tables."""

QUESTION: Final = "question"
"""The key, in a charge's guarantee, of the question that its released value answers."""

MECHANISM: Final = "mechanism"
"""The key, in a charge's guarantee, of the mechanism, unless the guarantee states its noise."""

RELEASED: Final = "released"
"""The key, in a charge's guarantee, of the digest of the value that was drawn with it."""

RENEWALS: Final = {"year": 4, "month": 7, "day": 10}
"""The periods after which a budget renews: the prefix of a charge's UTC time that names them."""

_ROWS: Final = 10_000
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# The columns of a charge except its amounts, with their types; SQLite does not enforce types.
_INTEGERS: Final = ("id", "assumed", "paid", "spared")
_TEXTS: Final = ("batch", "made", "guarantee", "paid_digest", "spared_digest", "previous")


def canonical(value: object) -> str:
    r"""The canonical ASCII text of a JSON value."""
    return _ENCODER.encode(value)


def names_digest(names: Iterable[str]) -> str:
    r"""The SHA-256 of the sorted names, each followed by a newline; names contain no newline."""
    digest, rest = hashlib.sha256(), iter(names)
    while some := [*islice(rest, _ROWS)]:
        digest.update("\n".join([*some, ""]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def value_digest(text: str) -> str:
    r"""The SHA-256 of a released value as stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def genesis(filter_text: str) -> str:
    r"""The digest before the first charge, of the format and the filter with its budget."""
    return hashlib.sha256(canonical([HISTORY, filter_text]).encode()).hexdigest()


def now() -> str:
    r"""The current time in UTC, as it is stored with a charge."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Account(NamedTuple):
    r"""The amounts that a user has spent in the last period, and the number of assumed charges."""

    totals: tuple[int, ...]
    assumed: int
    counted: str
    """The totals and ``assumed`` as text: one string for all users with the same account."""

    @classmethod
    def of(cls, totals: tuple[int, ...], assumed: int = 0) -> Self:
        r"""The account with these amounts."""
        return cls(totals, assumed, "\n".join(map(str, (*totals, assumed))))

    def row(self, identity: str, name: str) -> tuple[object, ...]:
        r"""The row of the user ``name`` in the ledger with this identity.

        Its last cell is a digest of the ledger's identity, the user's name and the counters.
        """
        # A name contains no newline.
        identifier = f"{identity}\n{name}\n{self.counted}"
        mark = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return name, *self.totals, self.assumed, mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    r"""A charge of the history: ``amounts`` for each of ``paid`` users; ``spared`` were left out.

    ``number`` counts from 1. ``guarantee`` is the claim or curve as JSON, ``amounts`` is its price
    in the integers of the filter. ``digest`` fixes this charge and all charges before it.
    """

    number: int
    batch: str
    made: str
    guarantee: Mapping[str, Any]
    amounts: tuple[int, ...]
    assumed: bool
    paid: int
    spared: int
    paid_digest: str
    spared_digest: str
    previous: str

    @classmethod
    def of(cls, row: Mapping[Any, Any], owed: tuple[str, ...]) -> Charge:
        r"""The charge in a row of ``ledger_charges``, with the amounts in columns ``owed``.

        Raises :class:`LedgerDamaged` if any field differs from the one that was digested.
        """
        where = f"charge {row['id']} (batch {row['batch']!r})"
        for kind, columns in ((int, (*_INTEGERS, *owed)), (str, _TEXTS)):
            for column in columns:
                if type(row[column]) is not kind:
                    raise LedgerDamaged(where, f"was edited: its {column} is {row[column]!r}")
        try:
            guarantee = json.loads(row["guarantee"])
        except (ValueError, RecursionError):
            guarantee = None
        if guarantee is None or canonical(guarantee) != row["guarantee"]:
            raise LedgerDamaged(where, "was edited: its guarantee is not in canonical form")
        charge = cls(
            number=row["id"],
            amounts=tuple(row[name] for name in owed),
            assumed=row["assumed"] == 1,
            guarantee=guarantee,
            **{name: row[name] for name in ("paid", "spared", *_TEXTS) if name != "guarantee"},
        )
        if row["assumed"] not in (0, 1) or charge.digest != row["digest"]:
            raise LedgerDamaged(where, "was edited: its digest does not match")
        return charge

    @property
    def where(self) -> str:
        r"""The name of this charge in error messages."""
        return f"charge {self.number} (batch {self.batch!r})"

    @property
    def released(self) -> str | None:
        r"""The digest of the value that was released with this charge."""
        return self.guarantee.get(RELEASED)

    @property
    def digest(self) -> str:
        r"""The SHA-256 of all fields, including the previous digest."""
        parts = [
            self.number, self.batch, self.made, self.guarantee, self.amounts, int(self.assumed),
            self.paid, self.spared, self.paid_digest, self.spared_digest, self.previous,
        ]  # fmt: skip
        return hashlib.sha256(canonical(parts).encode()).hexdigest()

    def row(self, digest: str) -> tuple[object, ...]:
        r"""The row of ``ledger_charges``, in column order."""
        return (
            self.number, self.batch, self.made, canonical(self.guarantee), *self.amounts,
            int(self.assumed), self.paid, self.spared, self.paid_digest, self.spared_digest,
            self.previous, digest,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        r"""All fields and the digest."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        amounts = [str(amount) for amount in self.amounts]
        return {"charge": found.pop("number"), **found, "amounts": amounts, "digest": self.digest}
