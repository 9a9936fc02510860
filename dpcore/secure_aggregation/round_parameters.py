r"""The parameters of a round of masked aggregation, shared by all parties.

A user shares keys and masks with all users, or with its k nearest users on a random circle. With
all users, the work of a user is O(n); with neighbours it is O(k), where k = O(log n) suffices
(Bell, Bonawitz, Gascon, Lepoint and Raykova, "Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead", CCS 2020, semi-honest variant). The users are on a circle in a
uniformly random order: the graph is a Harary graph under a random permutation.

The bounds on the failure probabilities are exact rationals: sums of hypergeometric probabilities,
combined by the union bound. The bounds hold for any colluding users and dropouts, **if neither
depends on the graph**. Proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, Whole, check_fields, integer, rational_in
from dpcore.sampling.rng import Rng, permutation

SERVER: Final = ""
ROUND_BYTES: Final = 32
LARGEST_MODULUS: Final = 1 << 62  # the sum of two residues fits int64
MOST_NEIGHBOURS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    r"""The number k of ``neighbours`` per user, and the number of shares that reconstruct a secret.

    Half of the neighbours lie on each side of a user on the circle. ``threshold`` is the number of
    shares. Raises :class:`InvalidParameter` unless k is an even number in [2, 1024] and
    (k + 1)/2 < ``threshold`` <= k + 1.
    :func:`dpcore.secure_aggregation.round_parameters.size_neighbourhood` finds safe values for
    given numbers of colluding users and dropouts.
    """

    neighbours: Whole = Whole(at_least=2)
    threshold: Whole = Whole(at_least=2)

    def __post_init__(self) -> None:
        check_fields(self)
        count, threshold = self.neighbours, self.threshold
        if count % 2 or count > MOST_NEIGHBOURS:
            reason = f"must be even and <= {MOST_NEIGHBOURS}: half lie on each side of a user"
            raise InvalidParameter("neighbours", self.neighbours, reason)
        if 2 * threshold <= count + 1:
            reason = (
                "must be > (neighbours + 1) / 2, or two disjoint groups could reconstruct a secret"
            )
            raise InvalidParameter("threshold", self.threshold, reason)
        if threshold > count + 1:
            reason = f"must be <= neighbours + 1 = {count + 1}, the number of users with shares"
            raise InvalidParameter("threshold", self.threshold, reason)


def neighbours_of(
    names: Sequence[str], neighbourhood: Neighbourhood | None, rng: Rng
) -> dict[str, tuple[str, ...]]:
    r"""Map each name to the sorted names of its neighbours and itself.

    Without a neighbourhood (the complete graph) every name is mapped to all names, and nothing is
    drawn. Otherwise the order on the circle is uniform and independent of everything else, and
    there must be more than k + 1 distinct ``names``.
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
class Terms:
    r"""The parameters of masked aggregation that do not depend on the round.

    Up to ``dropouts`` of the enrolled ``users`` may drop out, where 2 dropouts < users. Inputs are
    vectors of ``coordinates`` residues mod ``modulus``, where 2 <= modulus <= 2^62. Without a
    ``neighbourhood`` every user shares with all others, otherwise with at most users - 2.
    """

    users: Whole = Whole(at_least=2, at_most=(1 << 16) - 1)
    dropouts: Whole = Whole(at_least=0)
    coordinates: Whole = Whole(at_most=(1 << 32) - 1)
    modulus: Whole = Whole(at_least=2, at_most=LARGEST_MODULUS)
    neighbourhood: Neighbourhood | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if 2 * self.dropouts >= self.users:
            reason = "must be < users / 2, or two disjoint groups could reconstruct a secret"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        graph = self.neighbourhood
        if graph is not None:
            if not isinstance(graph, Neighbourhood):
                raise InvalidParameter("neighbourhood", graph, "must be a Neighbourhood or None")
            if graph.neighbours > self.users - 2:
                reason = f"must have neighbours <= {self.users - 2}; omit it to pair all users"
                raise InvalidParameter("neighbourhood", graph, reason)

    @property
    def quorum(self) -> int:
        r"""The least number of users that each step needs: ``users`` - ``dropouts``."""
        return self.users - self.dropouts

    @property
    def threshold(self) -> int:
        r"""The number of shares that reconstruct a secret: the quorum without a neighbourhood."""
        return self.quorum if self.neighbourhood is None else self.neighbourhood.threshold

    @property
    def holders(self) -> int:
        r"""The number of users, including the owner, who receive shares of a secret."""
        return self.users if self.neighbourhood is None else self.neighbourhood.neighbours + 1

    @property
    def value_bytes(self) -> int:
        r"""The number of bytes of one residue in a message."""
        return ((self.modulus - 1).bit_length() + 7) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Terms):
    r"""The parameters that all parties of a round agree on; every key is bound to them.

    ``identifier`` is 32 bytes, unique among rounds with the same enrolled keys.
    """

    identifier: bytes
    context: bytes = field(init=False, repr=False, compare=False)
    r"""SHA-256 of the round and its parameters: the salt of every derived key."""

    def __post_init__(self) -> None:
        if not isinstance(self.identifier, bytes) or len(self.identifier) != ROUND_BYTES:
            reason = f"must be {ROUND_BYTES} bytes long"
            raise InvalidParameter("identifier", self.identifier, reason)
        Terms.__post_init__(self)
        object.__setattr__(self, "context", _context(self))


def _context(terms: Round) -> bytes:
    # Each encoding has fixed length, with or without a graph: distinct rounds give distinct bytes.
    numbers = [terms.users, terms.dropouts, terms.coordinates, terms.modulus]
    if terms.neighbourhood is not None:
        numbers += [terms.neighbourhood.neighbours, terms.neighbourhood.threshold]
    encoded = b"".join(n.to_bytes(8, "big") for n in numbers)
    return hashlib.sha256(b"dpcore masked aggregation 1" + terms.identifier + encoded).digest()


def check_identity(identity: str) -> str:
    r"""Return ``identity`` if it is 1 to 255 bytes long in UTF-8, otherwise raise an error."""
    try:
        fits = isinstance(identity, str) and 1 <= len(identity.encode()) <= 255
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidParameter("identity", identity, "must be a string of 1 to 255 bytes of UTF-8")
    return identity


MOST_EXPOSURE: Final = Fraction(1, 1 << 40)
r"""The largest probability of exposure that is accepted as private, 2^-40."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourhoodRisk:
    r"""Upper bounds on the probabilities of three failures, over the random graph.

    ``corrupted``: the colluding users have enough shares of some honest user to read its input.
    ``disconnected``: the graph of the honest users whose inputs arrive is disconnected, and the
    server learns the sum of each component. ``stranded``: too few users have shares of some user,
    and the round ends without a sum. The first two failures concern privacy; the third does not.
    """

    corrupted: Fraction
    disconnected: Fraction
    stranded: Fraction

    @property
    def exposure(self) -> Fraction:
        r"""An upper bound on P(the server learns more than the sum), to be added to delta."""
        return min(Fraction(1), self.corrupted + self.disconnected)


def neighbourhood_risk(
    *, users: int, dropouts: int, colluding: int, neighbourhood: Neighbourhood
) -> NeighbourhoodRisk:
    r"""Bound the risks if up to ``dropouts`` users drop out and ``colluding`` users collude."""
    users, dropouts, colluding = _counts(users, dropouts, colluding)
    if neighbourhood.neighbours > users - 2:
        reason = (
            f"must be <= users - 2 = {users - 2}; to make all users neighbours, use a "
            "MaskedAggregation without a neighbourhood"
        )
        raise InvalidParameter("neighbours", neighbourhood.neighbours, reason)
    count, threshold = neighbourhood.neighbours, neighbourhood.threshold
    holding = _Tail(users - 1, colluding, count)
    return NeighbourhoodRisk(
        corrupted=min(Fraction(1), users * holding.at_least(threshold)),
        disconnected=_disconnected(users, dropouts + colluding, count),
        stranded=_stranded(users, dropouts, count, threshold),
    )


def size_neighbourhood(
    *,
    users: int,
    dropouts: int,
    colluding: int,
    exposure: RationalLike = MOST_EXPOSURE,
    failure: RationalLike = "1e-6",
) -> Neighbourhood | None:
    r"""Find the smallest number k of neighbours, and its smallest threshold, for given risks.

    ``exposure`` bounds the probability that the server learns more than the sum, and ``failure``
    the probability that up to ``dropouts`` dropouts make the round fail. If no k <= min(users -
    2, 1024) meets both bounds, the result is None: use the complete graph, ``neighbourhood=None``.
    """
    users, dropouts, colluding = _counts(users, dropouts, colluding)
    most_exposed = rational_in("exposure", exposure, "(0, 1)")
    most_stranded = rational_in("failure", failure, "(0, 1)")
    for count in range(2, min(users - 2, MOST_NEIGHBOURS) + 1, 2):
        left = most_exposed - _disconnected(users, dropouts + colluding, count)
        holding = _Tail(users - 1, colluding, count)
        enough = range(count // 2 + 1, count + 2)
        # The smallest threshold that meets the first bound: a larger one strands more rounds.
        place = bisect_left(enough, -left, key=lambda t: -users * holding.at_least(t))
        if place < len(enough):
            threshold = enough[place]
            if _stranded(users, dropouts, count, threshold) <= most_stranded:
                return Neighbourhood(neighbours=count, threshold=threshold)
    return None


class _Tail:
    # P(J >= j) for hypergeometric J, the number of marked users among ``drawn`` out of
    # ``population``, in integers: each number of ways follows from the last by an exact ratio.
    __slots__ = ("_first", "_sums")

    def __init__(self, population: int, marked: int, drawn: int) -> None:
        free = population - marked
        self._first = first = max(0, drawn - free)
        last = min(marked, drawn)
        ways = [math.comb(marked, first) * math.comb(free, drawn - first)]
        for j in range(first, last):
            above = (marked - j) * (drawn - j)
            ways.append(ways[-1] * above // ((j + 1) * (free - drawn + j + 1)))
        self._sums = [*accumulate(reversed(ways))][::-1]

    def at_least(self, j: int) -> Fraction:
        place = max(0, j - self._first)
        ways = self._sums[place] if place < len(self._sums) else 0
        return Fraction(ways, self._sums[0])


def _disconnected(users: int, removed: int, count: int) -> Fraction:
    # If the graph is disconnected, two remaining users are each followed by k/2 removed ones, with
    # probability at most C(left, 2) C(r, k)/C(n - 1, k) for r removed users. This increases with r
    # while r <= (left + 1) k/2; for larger r the bound is 1.
    left = users - removed
    if left < 1 or removed > (left + 1) * (count // 2):
        return Fraction(1)
    pairs = math.comb(left, 2) * math.comb(removed, count)
    return min(Fraction(1), Fraction(pairs, math.comb(users - 1, count)))


def _stranded(users: int, dropouts: int, count: int, threshold: int) -> Fraction:
    # The secret of a remaining user, who has its own share, needs threshold - 1 remaining
    # neighbours; the secret of a dropout needs threshold.
    spare = count - threshold + 1
    staying = (users - dropouts) * _Tail(users - 1, dropouts, count).at_least(spare + 1)
    gone = Fraction(0)
    if dropouts:
        gone = dropouts * _Tail(users - 1, dropouts - 1, count).at_least(spare)
    return min(Fraction(1), staying + gone)


def _counts(users: int, dropouts: int, colluding: int) -> tuple[int, int, int]:
    users = integer("users", users, at_least=2)
    dropouts, colluding = (
        integer(name, value, at_least=0, at_most=users - 1, limit="users - 1")
        for name, value in (("dropouts", dropouts), ("colluding", colluding))
    )
    return users, dropouts, colluding
