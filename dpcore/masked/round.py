r"""What the parties of one round of masked aggregation agree on before it starts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.masked.masks import LARGEST_MODULUS
from dpcore.masked.neighbourhood import Neighbourhood
from dpcore.numbers.parameter import Whole, check_fields

SERVER: Final = ""
ROUND_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    r"""What all parties of one round agree on beforehand; every key is bound to all of it.

    ``identifier`` is 32 bytes that no other round under the same enrolled keys has; ``users``
    are enrolled, up to ``dropouts`` of them may vanish, 2 dropouts < users; inputs are vectors of
    ``coordinates`` residues mod ``modulus``, 2 <= modulus <= 2^62. Without a ``neighbourhood``
    everyone shares with everyone; with one, k <= users - 2.

    >>> Round(identifier=bytes(32), users=5, dropouts=1, coordinates=3, modulus=100).threshold
    4
    """

    identifier: bytes
    users: Whole = Whole(at_least=2, at_most=(1 << 16) - 1)
    dropouts: Whole = Whole(at_least=0)
    coordinates: Whole = Whole(at_most=(1 << 32) - 1)
    modulus: Whole = Whole(at_least=2, at_most=LARGEST_MODULUS)
    neighbourhood: Neighbourhood | None = None
    context: bytes = field(init=False, repr=False, compare=False)
    r"""SHA-256 of the round and its parameters: the salt of every derived key."""

    def __post_init__(self) -> None:
        if not isinstance(self.identifier, bytes) or len(self.identifier) != ROUND_BYTES:
            raise InvalidParameter("identifier", self.identifier, f"must be {ROUND_BYTES} bytes")
        check_fields(self)
        if 2 * self.dropouts >= self.users:
            reason = "must be < users / 2: two disjoint groups could answer for one user otherwise"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        graph = self.neighbourhood
        if graph is not None:
            if not isinstance(graph, Neighbourhood):
                raise InvalidParameter("neighbourhood", graph, "must be a Neighbourhood or None")
            if graph.neighbours > self.users - 2:
                reason = f"must have <= {self.users - 2} neighbours: leave it out for everyone"
                raise InvalidParameter("neighbourhood", graph, reason)
        object.__setattr__(self, "context", _context(self))

    @property
    def quorum(self) -> int:
        r"""How many users each step needs: n - t."""
        return self.users - self.dropouts

    @property
    def threshold(self) -> int:
        r"""How many shares reconstruct: n - t of everyone's, or as the neighbourhood says."""
        return self.quorum if self.neighbourhood is None else self.neighbourhood.threshold

    @property
    def holders(self) -> int:
        r"""How many users hold a share of one of them, itself among them, while all are there."""
        return self.users if self.neighbourhood is None else self.neighbourhood.neighbours + 1

    @property
    def value_bytes(self) -> int:
        r"""Bytes of one residue in a message."""
        return ((self.modulus - 1).bit_length() + 7) // 8


def _context(terms: Round) -> bytes:
    # Of fixed length each, with the graph or without: no two rounds give the same bytes.
    numbers = [terms.users, terms.dropouts, terms.coordinates, terms.modulus]
    if terms.neighbourhood is not None:
        numbers += [terms.neighbourhood.neighbours, terms.neighbourhood.threshold]
    encoded = b"".join(n.to_bytes(8, "big") for n in numbers)
    return hashlib.sha256(b"dpcore masked aggregation 1" + terms.identifier + encoded).digest()


def check_identity(identity: str) -> str:
    r"""An identity as it may travel: 1 to 255 bytes of UTF-8.

    >>> check_identity("")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: identity = : must be a text of 1 to 255 bytes of UTF-8
    """
    try:
        fits = isinstance(identity, str) and 1 <= len(identity.encode()) <= 255
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidParameter("identity", identity, "must be a text of 1 to 255 bytes of UTF-8")
    return identity
