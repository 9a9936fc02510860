r"""Few atoms in all: delta(epsilon) as a plain sum over pairs of two halves of the rounds.

delta = P(L = oo) + sum over (a, b) with L_a + L_b > epsilon of P_a P_b - e^epsilon Q_a Q_b. With
both halves sorted the inner sums are suffix sums: no transform, no grid, no tilt. Rounds of one law
are told apart by how often each atom occurs, so k of them have one atom a multiset; what is too
rare to matter is left out, and its P-mass is the error of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from accounting.checker.clock import tick, ticking
from accounting.checker.laws.losses import Losses
from accounting.checker.laws.masses import REAL, Number
from accounting.checker.laws.value import Value

__all__ = ["Atoms", "Halves", "halves"]

Atoms = list[tuple[Number, Number, Number]]
"""(loss, P-mass, Q-mass), one an atom."""

_MOST: Final = 200_000
_MOST_ROUNDS: Final = 40
_LEAST: Final = 1e-290
_USUAL: Final = REAL.mpf(10) ** -6
_RELATIVE: Final = REAL.mpf(10) ** -40


class _TooMany(Exception):
    pass


def halves(listed: Sequence[tuple[Losses, int]], least: float = 0.0) -> Halves | None:
    r"""The rounds in two halves, or None where a half would hold more than 200 000 atoms.

    Atoms whose P-mass is below ``least`` are left out.
    """
    if sum(count for _, count in listed) > _MOST_ROUNDS:
        return None
    rows: tuple[list[tuple[Losses, int]], list[tuple[Losses, int]]] = ([], [])
    rounds = 0
    for one, count in sorted(listed, key=lambda pair: -len(pair[0].here)):
        # Of an odd number the one more goes left and right in turn.
        more = (count + rounds % 2) // 2
        for row, share in zip(rows, (count - more, more), strict=True):
            if share:
                row.append((one, share))
        rounds += count
    if any(math.prod(_usual(one, share) for one, share in row) > _MOST for row in rows):
        return None
    # Below what a float holds nothing is rare.
    rare = least if least > _LEAST else 0.0
    alike = [(id(one), share) for one, share in rows[0]] == [
        (id(one), share) for one, share in rows[1]
    ]
    try:
        left = _joined(rows[0], rare)
        right = left if alike else _joined(rows[1], rare)
    except _TooMany:
        return None
    return Halves(left=left[0], right=right[0], dropped=left[1] + right[1])


def _usual(one: Losses, count: int) -> int:
    # How many multisets there are of the atoms that hold all but a millionth of P.
    atoms, left = sorted(one.here), sum(one.here) * _USUAL
    rare = 0
    while rare < len(atoms) and atoms[rare] < left:
        left -= atoms[rare]
        rare += 1
    return math.comb(len(atoms) - rare + count - 1, count)


def _joined(row: list[tuple[Losses, int]], least: float) -> tuple[Atoms, float]:
    # The atoms of a half, by rising loss, and at most how much of P they leave out.
    found: Atoms = [(REAL.zero, REAL.one, REAL.one)]
    lost = 0.0
    for one, count in row:
        power, rare = _power(one, count, least)
        lost += rare
        kept = []
        for loss, p, q in ticking(found):
            for l, a, b in power:
                here = p * a
                if here < least:
                    lost += 2 * float(here)
                else:
                    kept.append((loss + l, here, q * b))
            if len(kept) > _MOST:
                raise _TooMany
        found = kept
    # By floats first: what they leave to the exact comparison is nearly in order.
    found.sort(key=lambda atom: float(atom[0]))
    return sorted(found, key=lambda atom: atom[0]), lost


def _power(one: Losses, count: int, least: float) -> tuple[Atoms, float]:
    # The multisets of ``count`` atoms: an atom occurs j times with the weight P^j/j!, times count!.
    # Floats decide what is left out, and their rounding is far below the 2 that `lost` is times.
    atoms = sorted(zip(one.losses, one.here, one.there, strict=True), key=lambda atom: -atom[1])
    times = range(count + 1)
    here = [[p**j / REAL.factorial(j) for j in times] for _, p, _ in atoms]
    there = [[q**j / REAL.factorial(j) for j in times] for _, _, q in atoms]
    sizes = [[float(each) for each in row] for row in here]
    sums = [*accumulate((row[1] for row in reversed(sizes)), initial=0.0)]
    sums.reverse()
    # rest[k][i]: all that k rounds of the atoms from i on may weigh. It falls in i.
    rest = [[total**k / math.factorial(k) for total in sums] for k in times]
    ways = REAL.factorial(count)
    partly = [(count, 0, float(ways), REAL.zero, ways, ways)]
    found: Atoms = []
    lost = 0.0
    while partly:
        tick()
        left, first, size, loss, p, q = partly.pop()
        for i in range(first, len(atoms)):
            if size * rest[left][i] < least:
                lost += size * rest[left][i]
                break
            for j in range(1, left + 1):
                mass = size * sizes[i][j]
                if mass * rest[left - j][i + 1] < least:
                    lost += mass * rest[left - j][i + 1]
                    continue
                atom = (loss + j * atoms[i][0], p * here[i][j], q * there[i][j])
                if j < left:
                    partly.append((left - j, i + 1, mass, *atom))
                else:
                    found.append(atom)
        if len(found) > _MOST:
            raise _TooMany
    return found, 2 * lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    r"""The atoms of two halves, by rising loss, and how much of P they leave out at most."""

    left: Atoms
    right: Atoms
    dropped: float

    def payoff(self, epsilon: Number) -> Value:
        r"""sum of (P - e^epsilon Q)+ over all pairs of an atom of either half."""
        factor = REAL.exp(epsilon)
        here, there = [REAL.zero], [REAL.zero]
        for _, p, q in ticking(reversed(self.right)):
            here.append(here[-1] + p)
            there.append(there[-1] + q)
        total, sizes, taken = [], [], 0
        losses = [loss for loss, _, _ in reversed(self.right)]
        for loss, p, q in ticking(self.left):
            # As the left loss rises, more of the right half exceeds what is missing.
            missing = epsilon - loss
            while taken < len(losses) and losses[taken] > missing:
                taken += 1
            gain, price = p * here[taken], factor * q * there[taken]
            total.append(gain - price)
            sizes.append(gain + price)
        # The difference may be far smaller than what is subtracted, which has the rounding.
        error = REAL.fsum(sizes) * _RELATIVE + self.dropped
        return Value(value=REAL.fsum(total), error=error)
