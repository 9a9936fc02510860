r"""Choose who shares keys and masks: everyone, or the nearest k on a random circle.

With everyone a user's work grows with n. With k = O(log n) neighbours it does not (Bell, Bonawitz,
Gascon, Lepoint and Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
CCS 2020, semi-honest variant): the users sit on a circle in a uniformly random order, a Harary
graph under a random permutation. ``sizing`` computes how often that fails and finds the least k.
Proof: docs/proofs/masked_aggregation.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import Whole, check_fields
from dpcore.sampling.permutation import permutation
from dpcore.sampling.rng import Rng

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
    dpcore.errors.InvalidParameter: threshold = 6: must be <= 5: so many hold shares of a user
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
            reason = "must be > (neighbours + 1) / 2: otherwise two groups could answer"
            raise InvalidParameter("threshold", self.threshold, reason)
        if threshold > count + 1:
            reason = f"must be <= {count + 1}: so many hold shares of a user"
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
