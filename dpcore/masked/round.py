r"""The parameters of a round of masked aggregation, shared by all parties.

Shared keys and masks are with everyone, or with the nearest k on a random circle. With everyone a
user's work grows with n; with k = O(log n) neighbours it does not (Bell, Bonawitz, Gascon, Lepoint
and Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", CCS 2020,
semi-honest variant): the users sit on a circle in a uniformly random order, a Harary graph under a
random permutation. ``sizing`` computes how often that fails and finds the least k.
Proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.masked.masks import LARGEST_MODULUS
from dpcore.numbers.parameter import Whole, check_fields
from dpcore.sampling.rng import Rng, permutation

SERVER: Final = ""
ROUND_BYTES: Final = 32
MOST_NEIGHBOURS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    r"""k ``neighbours`` of each user, and how many shares of it, its own among them, reconstruct.

    k is even, half of it on either side of the circle, in [2, 1024]; (k + 1)/2 < ``threshold`` <=
    k + 1; otherwise :class:`InvalidParameter`. Which k and threshold are safe depends on how many
    collude and vanish: :func:`dpcore.masked.sizing.size_neighbourhood`.

    >>> Neighbourhood(neighbours=4, threshold=6)
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: threshold = 6: must be <= 5, the number of users with shares
    """

    neighbours: Whole = Whole(at_least=2)
    threshold: Whole = Whole(at_least=2)

    def __post_init__(self) -> None:
        check_fields(self)
        count, threshold = self.neighbours, self.threshold
        if count % 2 or count > MOST_NEIGHBOURS:
            reason = f"must be even and <= {MOST_NEIGHBOURS}: half of them on either side"
            raise InvalidParameter("neighbours", self.neighbours, reason)
        if 2 * threshold <= count + 1:
            reason = "must be > (neighbours + 1) / 2: otherwise two groups could reconstruct"
            raise InvalidParameter("threshold", self.threshold, reason)
        if threshold > count + 1:
            reason = f"must be <= {count + 1}, the number of users with shares"
            raise InvalidParameter("threshold", self.threshold, reason)


def neighbours_of(
    names: Sequence[str], neighbourhood: Neighbourhood | None, rng: Rng
) -> dict[str, tuple[str, ...]]:
    r"""Each name with its neighbours and itself, in increasing order; all names without a graph.

    The order on the circle is uniform and independent of everything else. Nothing is drawn for the
    complete graph. ``names`` are distinct and more than k + 1.

    >>> from dpcore.sampling.rng import SeededRng
    >>> ring = Neighbourhood(neighbours=2, threshold=2)
    >>> neighbours_of(["ann", "bob", "eve", "joe"], ring, SeededRng(2))["ann"]
    ('ann', 'eve', 'joe')
    """
    if neighbourhood is None:
        return dict.fromkeys(names, tuple(sorted(names)))
    count = neighbourhood.neighbours
    circle = [names[place] for place in permutation(len(names), rng)]
    around = circle[-count // 2 :] + circle + circle[: count // 2]
    return {
        name: tuple(sorted(around[place : place + count + 1])) for place, name in enumerate(circle)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    r"""The parameters that all parties of a round agree on; every key is bound to them.

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
            reason = "must be < users / 2: otherwise two disjoint groups could answer for one user"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        graph = self.neighbourhood
        if graph is not None:
            if not isinstance(graph, Neighbourhood):
                raise InvalidParameter("neighbourhood", graph, "must be a Neighbourhood or None")
            if graph.neighbours > self.users - 2:
                reason = f"must have <= {self.users - 2} neighbours; leave it out for all users"
                raise InvalidParameter("neighbourhood", graph, reason)
        object.__setattr__(self, "context", _context(self))

    @property
    def quorum(self) -> int:
        r"""The number of users that each step needs: n - t."""
        return self.users - self.dropouts

    @property
    def threshold(self) -> int:
        r"""The number of shares that reconstruct: n - t of all users, or of the neighbourhood."""
        return self.quorum if self.neighbourhood is None else self.neighbourhood.threshold

    @property
    def holders(self) -> int:
        r"""The number of users that hold a share, including its owner, if no user drops out."""
        return self.users if self.neighbourhood is None else self.neighbourhood.neighbours + 1

    @property
    def value_bytes(self) -> int:
        r"""The number of bytes of one residue in a message."""
        return ((self.modulus - 1).bit_length() + 7) // 8


def _context(terms: Round) -> bytes:
    # Of fixed length each, with the graph or without: no two rounds give the same bytes.
    numbers = [terms.users, terms.dropouts, terms.coordinates, terms.modulus]
    if terms.neighbourhood is not None:
        numbers += [terms.neighbourhood.neighbours, terms.neighbourhood.threshold]
    encoded = b"".join(n.to_bytes(8, "big") for n in numbers)
    return hashlib.sha256(b"dpcore masked aggregation 1" + terms.identifier + encoded).digest()


def check_identity(identity: str) -> str:
    r"""Check an identity: 1 to 255 bytes of UTF-8.

    >>> check_identity("")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: identity = : must be a string of 1 to 255 bytes of UTF-8
    """
    try:
        fits = isinstance(identity, str) and 1 <= len(identity.encode()) <= 255
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidParameter("identity", identity, "must be a string of 1 to 255 bytes of UTF-8")
    return identity
