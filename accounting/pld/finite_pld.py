r"""A discretised privacy loss distribution: finitely many losses, and the mass at infinity.

:mod:`accounting.pld.discretise_round` computes such distributions from the cells of a round, and
:mod:`accounting.pld_composition` composes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import PrecisionExhausted
from dpcore.numbers.arrays import compensated_sum, exp_neg

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
_UP: Final = 1 + 2.0**-50
_UNIT: Final = 2.0**-53
_SAME: Final = 2.0**-48
_EVEN: Final = 2.0**-44
_TINY: Final = 2.0**-1040  # above the rounding error of 2^30 products below all normal floats


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    r"""A distribution with mass ``masses[i]`` at ``losses[i]``, and mass ``hidden`` at infinity.

    A listing bounds the privacy loss of a round from above (pessimistic: its delta is at least that
    of the round at every epsilon) or from below (optimistic), or is exact. ``losses`` are
    increasing. All numbers are floats that count as exact. The masses and ``hidden`` of one round
    sum to between 1 and 1 + 2^-50 for an upper bound, and to at most 1 otherwise.
    """

    losses: Floats
    masses: Floats
    hidden: float

    def delta(self, epsilon: Fraction) -> tuple[float, float]:
        r"""Lower and upper bounds on delta at ``epsilon``, the mean of (1 - e^(epsilon - L))+.

        L is the loss with this distribution; an infinite L contributes its whole mass.

        >>> half = Listing(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.0)
        >>> low, high = half.delta(Fraction(1, 2))
        >>> low <= 0.5 * (1 - 0.6065306597126334) <= high
        True
        """
        at = float(epsilon)
        apart = self.losses - at
        # By rounding, an atom close to epsilon may lie on either side of it.
        kept = apart > -(2.0**-50) * (1 + abs(at))
        masses, apart = self.masses[kept], np.maximum(apart[kept], 0.0)
        # The error of the difference is at most 2 u (its size + epsilon), that of the exponential
        # at most 2^-48.
        slip = 2.0**-47 + 2.0**-51 * abs(at)
        whole = float((masses * (1 - exp_neg(np.minimum(apart, 800.0)))).sum())
        error = float((masses * (slip + 2.0**-51 * apart)).sum()) * _UP
        error += whole * len(masses) * 2.0**-52
        low = max(whole - error, 0.0) + self.hidden
        return low * (1 - 2.0**-52), whole + error + self.hidden * _UP

    def tradeoff(self, alpha: Fraction) -> tuple[float, float]:
        r"""Lower and upper bounds on the least type II error of a test with type I error ``alpha``.

        By the Neyman-Pearson lemma, the best test rejects the largest losses, and randomises at the
        smallest of them.

        >>> fair = Listing(np.array([-1.0, 1.0]), np.array([0.25, 0.75]), 0.0)
        >>> low, high = fair.tradeoff(Fraction(1, 10))
        >>> low <= 0.25 + 0.75 - 0.1 * 2.718281828459045 <= high
        True
        """
        masses, losses = self.masses, np.clip(self.losses, -700.0, 700.0)
        fall = exp_neg(np.abs(losses))
        there = masses * np.where(losses > 0, fall, 1 / fall)
        # The Q-masses have a relative error of at most 2^-44, so alpha is scaled by that factor.
        ends = []
        for sign in (1, -1):
            level = float(alpha) * (1 + sign * 2.0**-44)
            spent = np.cumsum(there[::-1])[::-1]
            first = int(np.searchsorted(-spent, -level))
            used = math.fsum(there[first:])
            left = masses[:first].copy()
            slip = 0.0
            if first:
                share = min(max((level - used) / there[first - 1], 0.0), 1.0)
                left[-1] *= 1 - share
                # If rounding makes the sums stop at an adjacent atom, the error is at most this.
                steep = float(masses[first - 1] / there[first - 1])
                slip = steep * level * (len(masses) + 8) * 2.0**-51
            ends.append((math.fsum(left), slip))
        # Mass that is missing from 1 is not rejected.
        missing = 1 - math.fsum(masses) - self.hidden
        (low, down), (high, up) = ends
        return (
            max(low * (1 - 2.0**-50) - down + missing - 2.0**-51, 0.0),
            min(max(high * (1 + 2.0**-50) + up + missing + 2.0**-51, 0.0), 1.0),
        )

    def without(self, least: float, *, above: bool, ends: bool = False) -> Listing:
        r"""The distribution without its atoms of mass below ``least``.

        If ``ends`` is true, such atoms are removed only below the first and above the last other
        atom. If ``above`` is true, this listing is an upper bound, and the removed mass is moved to
        infinity. Nothing is removed if all atoms have a mass below ``least``.
        """
        kept = self.masses >= least
        if kept.all() or not kept.any():
            return self
        if ends:
            first, last = np.flatnonzero(kept)[[0, -1]]
            kept[first:last] = True
        gone = float(self.masses[~kept].sum()) * (1 + len(kept) * 2 * _UNIT)
        hidden = self.hidden + gone * (1 + 4 * _UNIT) if above else self.hidden
        return Listing(self.losses[kept], self.masses[kept], hidden)

    def plus(self, other: Listing, *, above: bool) -> Listing:
        r"""The distribution of the sum of two independent losses.

        Losses and masses are rounded up if ``above`` is true, else down. Sums that differ only by
        rounding errors become one atom, at the largest of these sums if ``above`` is true, else at
        the smallest.
        """
        sign = 1 if above else -1
        losses = np.nextafter(np.add.outer(self.losses, other.losses).ravel(), sign * np.inf)
        masses = np.multiply.outer(self.masses, other.masses).ravel() * (1 + sign * 4 * _UNIT)
        masses, hidden = np.maximum(masses + sign * _TINY, 0.0), self._either(other, sign)
        if not losses.size:  # every loss is infinite
            return Listing(losses, masses, hidden)
        order = np.argsort(losses, kind="stable")
        losses, masses = losses[order], masses[order]
        apart = np.diff(losses) > _SAME * (1 + np.abs(losses[1:]))
        starts = np.concatenate(([0], np.flatnonzero(apart) + 1))
        stops = np.append(starts[1:], len(losses))
        sums = np.add.reduceat(masses, starts) * (1 + sign * 2 * (stops - starts) * _UNIT)
        return Listing(losses[stops - 1] if above else losses[starts], sums, hidden)

    def convolved(self, other: Listing, *, above: bool) -> Listing | None:
        r"""The result of :meth:`plus`; None if not all losses are evenly spaced with one step."""
        sign, (a, b) = 1 if above else -1, sorted((self.losses, other.losses), key=len)
        if not len(a) or len(b) == 1:
            return None
        step = float(b[-1] - b[0]) / (len(b) - 1)
        line = step * np.arange(len(a) + len(b) - 1)
        apart = sum(float(np.abs(each - (each[0] + line[: len(each)])).max()) for each in (a, b))
        size = sum(float(np.abs(each).max()) for each in (a, b))
        if apart > _EVEN * size:
            return None
        # Each of the roundings is below 4 u of the sizes.
        losses = (a[0] + b[0]) + line + sign * (apart + 16 * _UNIT * size)
        # Each mass is a sum of at most this number of products, in any order.
        slip = (len(a) + 4) * 2 * _UNIT
        masses = np.convolve(self.masses, other.masses) * (1 + sign * slip) + sign * _TINY
        return Listing(losses, np.maximum(masses, 0.0), self._either(other, sign))

    def _either(self, other: Listing, sign: int) -> float:
        # The mass at infinity of a sum.
        hidden = self.hidden + other.hidden - self.hidden * other.hidden
        return max(hidden * (1 + sign * 8 * _UNIT), 0.0)

    def coarser(self, most: int, *, above: bool) -> Listing:
        r"""A bound on this distribution with about ``most`` of the losses as grid points.

        If ``above`` is true, the result is an upper bound: each atom is split between the two
        adjacent grid points, so that its P-mass and its Q-mass are preserved. Otherwise the result
        is a lower bound: all atoms from one grid point up to the next become one outcome.
        """
        if len(self.losses) <= most:
            return self
        kept = thinned(self.losses, self.masses, most)
        nodes = self.losses[kept]
        if not above:
            sizes = np.diff(np.append(kept, len(self.losses)))
            slip = sizes * 2.0**-51
            whole = np.add.reduceat(self.masses, kept) * (1 - slip)
            # Q-masses are in units of e^-node; too large a mass or exponential lowers the loss.
            fall = exp_neg(np.minimum(self.losses - np.repeat(nodes, sizes), 700.0))
            there = np.add.reduceat(self.masses * fall, kept) + sizes * _TINY
            rise = np.log(np.maximum(whole, _TINY) / there) - slip - 2.0**-45
            raised = nodes + np.maximum(rise, 0.0) * (1 - 2.0**-40)
            return Listing(np.nextafter(raised, -np.inf), whole, self.hidden)
        cell = np.clip(np.searchsorted(nodes, self.losses, side="right") - 1, 0, len(nodes) - 2)
        low, high = nodes[cell], nodes[cell + 1]
        # The share of the upper loss: (1 - e^-(l - u))/(1 - e^-(v - u)).
        share = np.expm1(low - self.losses) / np.expm1(low - high) * (1 + 2.0**-40)
        up = self.masses * np.clip(share, 0.0, 1.0)
        sums = np.bincount(cell + 1, up, len(nodes))
        sums = sums + np.bincount(cell, self.masses - up, len(nodes))
        grown: Floats = np.asarray(sums * (1 + len(self.losses) * 2.0**-51), np.float64)
        return Listing.above(nodes, grown, self.hidden)

    @classmethod
    def above(cls, losses: Floats, masses: Floats, hidden: float) -> Listing:
        r"""The upper bound on a distribution, from upper bounds on its ``losses`` and ``masses``.

        ``hidden`` is an upper bound on the mass at infinity. If all masses sum to more than 1, the
        excess is removed from the smallest losses; if to less, the rest is added to the smallest
        loss. The result is the stochastically smallest distribution above all that satisfy these
        bounds. Raises :class:`PrecisionExhausted` if a loss is infinite or ``hidden`` >= 1.
        """
        distinct, place = np.unique(losses, return_inverse=True)
        times = int(np.bincount(place).max()) if len(place) else 1
        sums = np.bincount(place, masses, len(distinct)).astype(np.float64)
        sums *= 1 + times * 2.0**-51
        losses, masses = np.asarray(distinct, np.float64), sums
        if not (hidden < 1 and np.all(np.isfinite(losses))):
            raise PrecisionExhausted("the upper discretisation has no finite loss: use more noise")
        # The margin exceeds the rounding of the sums, so the mass above the cut stays below 1.
        kept = (1 - hidden) * (1 - (len(losses) + 4) * 2.0**-51)
        tail = np.cumsum(masses[::-1])[::-1]
        # All mass is kept above the atom at which the sum reaches 1, and none below that atom.
        first = int(np.searchsorted(-tail, -kept, side="right")) - 1
        first = min(max(first, 0), len(losses) - 1)
        losses, masses = losses[first:], masses[first:].copy()
        found, slip = compensated_sum(masses[1:])
        masses[0] = max(1 - (found - slip) - hidden, 0.0) + 2.0**-52
        return cls(losses, masses, hidden)

    @classmethod
    def below(cls, losses: Floats, masses: Floats, most: Floats, hidden: float = 0.0) -> Listing:
        r"""A lower bound on a distribution, from bounds on the losses and masses of its atoms.

        ``losses`` and ``masses`` are lower bounds, ``most`` are upper bounds on the masses, and
        ``hidden`` is a lower bound on the mass at infinity. An atom whose mass may be 0 is dropped,
        since its loss may have any value. All other missing mass is added to the smallest remaining
        loss, so that the result is stochastically smaller. Raises :class:`PrecisionExhausted` if no
        atom remains and ``hidden`` is 0.
        """
        order = np.argsort(losses, kind="stable")
        losses, masses, most = losses[order], masses[order], most[order]
        kept = (masses > 0) & (losses > -np.inf)
        dropped = sum(compensated_sum(most[~kept])) * _UP
        losses, masses = losses[kept], masses[kept].copy()
        if not len(losses) and not hidden:
            raise PrecisionExhausted("the lower discretisation is empty: use more noise")
        rest = 1 - sum(compensated_sum(masses)) - dropped - hidden - 2.0**-50
        if rest > 0 and len(losses):
            masses[0] = (masses[0] + rest) * (1 - 2.0**-52)
        return cls(losses, masses, hidden)


def thinned(losses: Floats, masses: Floats, most: int) -> Integers:
    r"""The indices of about ``most`` of the increasing ``losses``, with the first and the last.

    Half of the indices have a density proportional to (mass per loss)^(1/3), which adds the least
    variance. Here a mass m at the loss l counts as m (1 + e^l). A quarter is spread evenly over the
    losses, and a quarter evenly over the atoms.
    """
    if len(losses) <= most:
        return np.arange(len(losses))
    weight = np.cbrt(masses * (1 + np.exp(np.minimum(losses, 40.0))))
    steps = np.append(0.0, np.diff(losses))
    place = np.zeros(len(losses))
    for share, each in (
        (0.5, weight * np.cbrt(steps) ** 2),
        (0.25, steps),
        (0.25, np.ones(len(losses))),
    ):
        place += share * np.cumsum(each) / max(float(each.sum()), 1e-300)
    found = np.searchsorted(place, np.linspace(place[0], place[-1], most))
    found = np.clip(np.append(found, [0, len(losses) - 1]), 0, len(losses) - 1)
    kept: Integers = np.unique(found, return_index=True)[0]  # without an import of numpy.ma
    return kept
