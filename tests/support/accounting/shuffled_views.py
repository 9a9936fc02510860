r"""The server's view of a pure shuffle by brute force: every composition, every output, exactly.

The masses of a share come from the reference module; each becomes an integer over 2^256, and the
law of a view is a product of integer polynomials, with nothing omitted.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations

import mpmath
from flint import fmpz_poly

from dpcore.protocols.shuffled_bits import PureShuffle
from tests.support.laws import second

_BITS = 256


def message_laws(protocol: PureShuffle) -> list[list[int]]:
    r"""For x = 0, ..., g return the law of the number of ones of one user, in units of 2^-256."""
    with mpmath.workprec(2 * _BITS):
        noise = [second(protocol.share, "pmf", j) for j in range(protocol.reach + 1)]
        kept = 1 - mpmath.mpf(protocol.cover.numerator) / protocol.cover.denominator
        noise = [kept * mass for mass in noise]
        cover = (1 - noise[0] - 2 * mpmath.fsum(noise[1:])) / (protocol.width + 1)
        found = []
        for x in range(protocol.precision + 1):
            places = (abs(y - protocol.reach - x) for y in range(protocol.width + 1))
            masses = [cover + (noise[j] if j <= protocol.reach else 0) for j in places]
            found.append([int(mpmath.nint(mass * 2**_BITS)) for mass in masses])
    return found


def worst_loss(protocol: PureShuffle, honest: int) -> float:
    r"""Return the largest loss of any user at any output, over all values of the other users."""
    laws = [fmpz_poly(law) for law in message_laws(protocol)]
    worst = mpmath.mpf(1)
    for held in combinations_with_replacement(range(len(laws)), honest - 1):
        others = fmpz_poly([1])
        for x in held:
            others *= laws[x]
        views = [[int(c) for c in (others * law).coeffs()] for law in laws]
        for one, other in permutations(views, 2):
            for p, q in zip(one, other, strict=True):
                if p > q:
                    worst = max(worst, mpmath.mpf(p) / q)
    return float(mpmath.log(worst))
