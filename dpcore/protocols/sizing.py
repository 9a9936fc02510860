r"""Choose the modulus of a sum: the smallest with a certified bound on the wraparound probability.

A sum mod m = n g + 2 tau + 1 is read back without error while the noise stays within [-tau, tau].
The papers choose tau by a Chernoff bound; here it comes from the exact tail of the law, by
bisection between enclosures. Proofs: docs/proofs/protocol.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import RationalLike, integer, rational_in

_MOST_BITS = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSize:
    r"""A certified threshold tau and modulus m.

    ``wraparound`` encloses P(\|noise\| > tau); its upper end bounds the chance that an estimate is
    off by m/g, whatever the data are. ``one_less`` encloses P(\|noise\| > tau - 1), which exceeds
    the failure probability: tau is the least (None where tau is 0).
    """

    threshold: int
    modulus: int
    wraparound: Enclosure
    one_less: Enclosure | None

    @property
    def bits_per_user(self) -> int:
        r"""ceil(log2 m): the length of a message."""
        return (self.modulus - 1).bit_length()


def size_protocol(
    *, users: int, precision: int, noise: Noise, failure: RationalLike
) -> ProtocolSize:
    r"""The least tau with P(\|X\| > tau) <= ``failure`` certified, and m = n g + 2 tau + 1.

    ``noise`` is the law of all the noise in the sum, ``protocol.planned_noise``. For the laws that
    a protocol accepts, dropouts only lower the tail, so tau serves every number of users that
    stay. A tail so close to ``failure`` that 1024 bits do not tell them apart counts as too large.

    >>> from dpcore import DiscreteLaplace
    >>> size = size_protocol(
    ...     users=1024, precision=32, noise=DiscreteLaplace(scale=32), failure="1e-6"
    ... )
    >>> size.threshold, size.modulus, size.bits_per_user
    (442, 33653, 16)
    >>> size.wraparound.upper <= Fraction(1, 10**6) < size.one_less.lower
    True

    Raises :class:`InvalidParameter` for users or precision below 1, for a noise of another type,
    and for a failure probability outside (0, 1).
    """
    users = integer("users", users, at_least=1)
    precision = integer("precision", precision, at_least=1)
    if not isinstance(noise, Noise):
        raise InvalidParameter("noise", noise, "must be a Noise, e.g. DiscreteLaplace")
    chance = rational_in("failure", failure, "(0, 1)")
    threshold = least(lambda t: t >= 0 and _certified(noise, t, chance), 0)
    return ProtocolSize(
        threshold=threshold,
        modulus=users * precision + 2 * threshold + 1,
        wraparound=noise.enclose_tail(threshold),
        one_less=noise.enclose_tail(threshold - 1) if threshold else None,
    )


def _certified(noise: Noise, threshold: int, chance: Fraction) -> bool:
    bits = 64
    while bits <= _MOST_BITS:
        tail = noise.enclose_tail(threshold, bits)
        if tail.upper <= chance:
            return True
        if tail.lower > chance:
            return False
        bits *= 2
    return False
