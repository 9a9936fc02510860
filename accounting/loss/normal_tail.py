r"""The normal distribution's tail, as a ball that stays narrow far out."""

from __future__ import annotations

from typing import Final

from flint import arb

_FAR: Final = 64


def upper_tail(x: arb) -> arb:
    r"""1 - Phi(x) = P(Z > x) for a standard normal Z.

    Far out it is e^(-x^2/2) U(1/2, 1/2, x^2/2)/(2 sqrt(pi)), which flint encloses closely for any
    size of x (DLMF 7.11.5); its erfc of a ball does not.

    >>> upper_tail(arb(1)).str(8, radius=False)
    '0.15865525'
    """
    if not x > _FAR:
        return (x / arb(2).sqrt()).erfc() / 2
    square, half = x * x / 2, arb(1) / 2
    return (-square).exp() * square.hypgeom_u(half, half) / (2 * arb.pi().sqrt())
