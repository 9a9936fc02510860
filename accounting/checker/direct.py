r"""Few atoms in all: delta(epsilon) as a plain sum over pairs of two halves of the list.

delta = P(L = oo) + sum over (a, b) with L_a + L_b > epsilon of P_a P_b - e^epsilon Q_a Q_b. With
both halves sorted the inner sums are suffix sums: no transform, no grid, no tilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accounting.checker.laws import REAL, Number
from accounting.checker.losses import Losses

__all__ = ["Atoms", "halves", "payoff"]

Atoms = list[tuple[Number, Number, Number]]
"""(loss, P-mass, Q-mass), one an atom."""

_MOST: Final = 200_000


def halves(listed: Sequence[tuple[Losses, int]]) -> tuple[Atoms, Atoms] | None:
    r"""The list in two halves of atoms, or None where a half would hold more than 200 000."""
    each = [one for one, count in listed for _ in range(min(count, 40))]
    if sum(count for _, count in listed) > len(each):
        return None
    each.sort(key=lambda one: -len(one.here))
    sizes, rows = [1, 1], ([], [])  # type: tuple[list[int], tuple[list[Losses], list[Losses]]]
    for one in each:
        at = 0 if sizes[0] <= sizes[1] else 1
        sizes[at] *= len(one.here)
        rows[at].append(one)
        if max(sizes) > _MOST:
            return None
    return _joined(rows[0]), _joined(rows[1])


def _joined(row: list[Losses]) -> Atoms:
    found: Atoms = [(REAL.zero, REAL.one, REAL.one)]
    if len(row) == 2 and row[0] is row[1]:
        return _sorted(_twice(row[0]))
    for one in row:
        atoms = [*zip(one.losses, one.here, one.there, strict=True)]
        found = [(l + k, p * a, q * b) for l, p, q in found for k, a, b in atoms]
    return _sorted(found)


def _sorted(atoms: Atoms) -> Atoms:
    # By floats first: what they leave to the exact comparison is nearly in order.
    roughly = sorted(atoms, key=lambda atom: float(atom[0]))
    return sorted(roughly, key=lambda atom: atom[0])


def _twice(one: Losses) -> Atoms:
    # Two rounds of one law: either order of two atoms has one loss.
    atoms, found = [*zip(one.losses, one.here, one.there, strict=True)], []
    for i, (loss, p, q) in enumerate(atoms):
        found.append((2 * loss, p * p, q * q))
        found += [(loss + l, 2 * p * a, 2 * q * b) for l, a, b in atoms[:i]]
    return found


def payoff(left: Atoms, right: Atoms, epsilon: Number) -> Number:
    r"""sum of (P - e^epsilon Q)+ over all pairs of an atom of ``left`` and one of ``right``."""
    factor = REAL.exp(epsilon)
    here, there = [REAL.zero], [REAL.zero]
    for _, p, q in reversed(right):
        here.append(here[-1] + p)
        there.append(there[-1] + q)
    total, taken = [], 0
    losses = [loss for loss, _, _ in reversed(right)]
    for loss, p, q in left:
        # As the left loss rises, more of the right half exceeds what is missing.
        missing = epsilon - loss
        while taken < len(losses) and losses[taken] > missing:
            taken += 1
        total.append(p * here[taken] - factor * q * there[taken])
    return REAL.fsum(total)
