r"""Size a random neighbourhood: bounds of its failure probability, and the smallest sufficient one.

Every number is an exact rational and an upper bound, proven on docs/proofs/masked_aggregation.md:
sums of hypergeometric masses in integers, joined by the union bound. They hold for any users that
collude and any that vanish, **if neither depends on the graph**, which is drawn at random.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.masked.round import MOST_NEIGHBOURS, Neighbourhood
from dpcore.numbers.parameter import RationalLike, integer, rational_in

MOST_EXPOSURE: Final = Fraction(1, 1 << 40)
r"""2^-40: the chance of exposure beyond which nothing here calls a graph private."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourhoodRisk:
    r"""Upper bounds on the probabilities, over the random graph, of the three failures.

    ``corrupted``: the colluding users hold enough shares of some honest user to read its input.
    ``disconnected``: the honest users whose inputs arrive fall apart into groups, and the server
    learns the sum of each. ``stranded``: too few hold shares of some user, and the round ends
    without a sum. The first two concern privacy, the third does not.
    """

    corrupted: Fraction
    disconnected: Fraction
    stranded: Fraction

    @property
    def exposure(self) -> Fraction:
        r"""Upper bound of the probability that the server learns more than the sum: add it to a
        delta.
        """
        return min(Fraction(1), self.corrupted + self.disconnected)


def neighbourhood_risk(
    *, users: int, dropouts: int, colluding: int, neighbourhood: Neighbourhood
) -> NeighbourhoodRisk:
    r"""Bounds for up to ``dropouts`` users who drop out and up to ``colluding`` users.

    >>> ring = Neighbourhood(neighbours=60, threshold=36)
    >>> risk = neighbourhood_risk(users=1000, dropouts=100, colluding=100, neighbourhood=ring)
    >>> risk.exposure < Fraction(1, 2**40), risk.stranded < Fraction(1, 10**6)
    (True, True)

    Raises :class:`InvalidParameter` for counts below 0 or not below ``users``, and for k > n - 2.
    """
    users, dropouts, colluding = _counts(users, dropouts, colluding)
    if neighbourhood.neighbours > users - 2:
        reason = (
            f"must be <= users - 2 = {users - 2}: without a neighbourhood each user has all others"
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
    r"""The least k, with its least threshold, that meets both bounds; None: use all users.

    ``exposure`` bounds the chance that the server learns more than the sum, ``failure`` the chance
    that up to ``dropouts`` users who vanish leave no sum. None where no k <= min(n - 2, 1024) keeps
    them: then the complete graph serves, ``neighbourhood=None``.

    >>> size_neighbourhood(users=1000, dropouts=100, colluding=100)
    Neighbourhood(neighbours=44, threshold=26)
    >>> size_neighbourhood(users=11, dropouts=5, colluding=4) is None
    True

    Raises :class:`InvalidParameter` for counts below 0 or not below ``users``, and for chances
    outside (0, 1).
    """
    users, dropouts, colluding = _counts(users, dropouts, colluding)
    most_exposed = rational_in("exposure", exposure, "(0, 1)")
    most_stranded = rational_in("failure", failure, "(0, 1)")
    for count in range(2, min(users - 2, MOST_NEIGHBOURS) + 1, 2):
        left = most_exposed - _disconnected(users, dropouts + colluding, count)
        holding = _Tail(users - 1, colluding, count)
        enough = range(count // 2 + 1, count + 2)
        # The least threshold that keeps the first bound: a higher one strands more.
        place = bisect_left(enough, -left, key=lambda t: -users * holding.at_least(t))
        if place < len(enough):
            threshold = enough[place]
            if _stranded(users, dropouts, count, threshold) <= most_stranded:
                return Neighbourhood(neighbours=count, threshold=threshold)
    return None


class _Tail:
    # P(J >= j) for J of ``marked`` in ``drawn`` out of ``population``, from integers: the number
    # of ways with j marked is that with j - 1 times an exact ratio.
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
    # Some two of those who are left are each followed by k/2 who are not: C(left, 2) C(r, k) over
    # C(n - 1, k) at most, which rises with r while r <= (left + 1) k/2. Beyond, nothing is said.
    left = users - removed
    if left < 1 or removed > (left + 1) * (count // 2):
        return Fraction(1)
    pairs = math.comb(left, 2) * math.comb(removed, count)
    return min(Fraction(1), Fraction(pairs, math.comb(users - 1, count)))


def _stranded(users: int, dropouts: int, count: int, threshold: int) -> Fraction:
    # Who stays holds a share of itself and needs threshold - 1 neighbours; who vanishes does not.
    spare = count - threshold + 1
    staying = (users - dropouts) * _Tail(users - 1, dropouts, count).at_least(spare + 1)
    gone = Fraction(0)
    if dropouts:
        gone = dropouts * _Tail(users - 1, dropouts - 1, count).at_least(spare)
    return min(Fraction(1), staying + gone)


def _counts(users: int, dropouts: int, colluding: int) -> tuple[int, int, int]:
    users = integer("users", users, at_least=2)
    found = []
    for name, value in (("dropouts", dropouts), ("colluding", colluding)):
        exact = integer(name, value, at_least=0)
        if exact >= users:
            raise InvalidParameter(name, value, f"must be < users = {users}")
        found.append(exact)
    return users, found[0], found[1]
