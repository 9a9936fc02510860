r"""The cells of a claimed law: cut from the law and the number of draws, never from the draws.

Every cell has its probability between two floats, from the law's own float functions and their
proven error; a test takes whichever end is kinder to the law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PrecisionExhausted
from dpcore.noise import FLOAT_ERROR, Noise

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

_MOST: Final = 256
_FEWEST_EXPECTED: Final = 5
# Beyond these quantiles a single draw tells: the far tails are cells of their own.
_FAR: Final = 2.0**-50
_MODULI: Final = (2, 3, 5)
# A difference of two float values loses the error of both, and a little to rounding.
_ERROR: Final = 4 * FLOAT_ERROR
# Below 1e-300 the float functions state no relative error: a little is added to all of them.
_LEAST: Final = 4e-300
_INT64: Final = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    r"""Draws, counted: by cell, by residue, and the extremes with how often they came."""

    counts: Integers
    residues: tuple[Integers, ...]
    least: tuple[int, int]
    most: tuple[int, int]

    @property
    def draws(self) -> int:
        return int(self.counts.sum())

    def plus(self, other: Seen) -> Seen:
        least, most = min(self.least[0], other.least[0]), max(self.most[0], other.most[0])
        return Seen(
            counts=self.counts + other.counts,
            residues=tuple(a + b for a, b in zip(self.residues, other.residues, strict=True)),
            least=(least, sum(n for x, n in (self.least, other.least) if x == least)),
            most=(most, sum(n for x, n in (self.most, other.most) if x == most)),
        )


# Equal only to itself: arrays neither compare nor hash as one value.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitCells:
    r"""A partition of the integers with enclosed probabilities.

    ``edges`` are first values of the cells after the first; ``lower`` and ``upper`` enclose each
    probability, ``nominal`` lies between them. ``scores`` are functions constant on cells, of
    mean 0 and variance 1 under the nominal law: position, distance and squared distance from the
    mean. ``spread`` is the standard deviation of the distance in units of its mean. ``moduli`` and
    ``slack``: P(X = r mod m) is within ``slack`` of 1/m for each m.
    """

    edges: Integers
    lower: Floats
    upper: Floats
    nominal: Floats
    scores: Floats
    spread: float
    moduli: tuple[int, ...]
    slack: float

    @classmethod
    def of(cls, noise: Noise, draws: int) -> Self:
        r"""The cells for so many draws; nothing that was drawn has a part in them.

        Raises :class:`InvalidParameter` where the law offers no float functions.
        """
        edges = _cut(noise, draws)
        lower, nominal, upper = _masses(noise, edges)
        wide = bool(np.any(np.diff(edges[1:-1]) > 1)) if len(edges) > 3 else False
        residual = wide and noise.log_concave
        scores, spread = _scores(noise, edges, nominal)
        return cls(
            edges=edges,
            lower=lower,
            upper=upper,
            nominal=nominal,
            scores=scores,
            spread=spread,
            moduli=_MODULI if residual else (),
            slack=_largest_mass(noise) if residual else 0.0,
        )

    def __len__(self) -> int:
        return len(self.nominal)

    @property
    def gap(self) -> float:
        r"""At least the total variation distance between the nominal law and the claimed one."""
        return float(np.sum(self.upper - self.lower)) * (1 + _ERROR)

    def count(self, draws: Integers) -> Seen:
        r"""Count draws by cell; at least one."""
        places = np.searchsorted(self.edges, draws, side="right")
        least, most = int(draws.min()), int(draws.max())
        return Seen(
            counts=np.bincount(places, minlength=len(self)).astype(np.int64),
            residues=tuple(
                np.bincount(draws % m, minlength=m).astype(np.int64) for m in self.moduli
            ),
            least=(least, int(np.count_nonzero(draws == least))),
            most=(most, int(np.count_nonzero(draws == most))),
        )

    def residue(self, modulus: int) -> tuple[float, float]:
        r"""Bounds on the probability of each residue of a modulus."""
        lower = (1 / modulus - self.slack) * (1 - _ERROR)
        return max(0.0, lower), min(1.0, (1 / modulus + self.slack) * (1 + _ERROR))

    def words(self, cell: int, last: int | None = None) -> str:
        r"""The values of a cell, or of all cells from one to another."""
        last = cell if last is None else last
        if cell == 0 and last == len(self) - 1:
            return "any x"
        if cell == 0:
            return f"x <= {self.edges[last] - 1}"
        if last == len(self) - 1:
            return f"x >= {self.edges[cell - 1]}"
        low, high = int(self.edges[cell - 1]), int(self.edges[last]) - 1
        return f"x = {low}" if low == high else f"{low} <= x <= {high}"

    def impossible(self, noise: Noise, seen: Seen) -> tuple[str, int] | None:
        r"""An event of probability exactly 0 that was drawn, and how often."""
        least, most = seen.least, seen.most
        if least[0] < self.edges[0] and _is_zero(noise, least[0], below=True):
            return f"x <= {least[0]}", least[1]
        if most[0] >= self.edges[-1] and _is_zero(noise, most[0], below=False):
            return f"x >= {most[0]}", most[1]
        return None


def _is_zero(noise: Noise, x: int, *, below: bool) -> bool:
    # An enclosure whose upper end is 0 is a proof; no enclosure is none.
    try:
        found = noise.enclose_cdf(x, 64) if below else noise.enclose_sf(x - 1, 64)
    except PrecisionExhausted:
        return False
    return found.upper == 0


def _cut(noise: Noise, draws: int) -> Integers:
    tail = min(max(_FEWEST_EXPECTED / draws, 4 * _FAR), 0.25)
    ends = np.asarray(noise.quantile([_FAR, tail, 1 - tail, 1 - _FAR]))
    far_low, low, high, far_high = (int(x) for x in ends)
    if high - low < _MOST:
        inner = np.arange(low, high + 2)
    else:
        # Cells of equal mass, and tails that halve.
        halves = tail * 2.0 ** np.arange(max(0, int(np.log2(1 / _MOST / tail))) + 1)
        even = np.arange(1, _MOST) / _MOST
        levels = np.unique(np.concatenate((halves, even, 1 - halves)))
        inner = np.unique(np.concatenate((noise.quantile(levels), [low, high + 1])))
    edges = np.concatenate(([far_low], _merged(noise, inner, draws), [far_high + 1]))
    return np.unique(edges[edges > _INT64.min]).astype(np.int64)


def _merged(noise: Noise, edges: Integers, draws: int) -> list[int]:
    # From the left, cells are joined until enough is expected in each; never with a tail.
    _, nominal, _ = _masses(noise, edges)
    enough = _FEWEST_EXPECTED * (1 - 2.0**-10)
    kept, expected = [int(edges[0])], 0.0
    for end, mass in zip(edges[1:].tolist(), nominal[1:-1].tolist(), strict=True):
        expected += draws * mass
        if expected >= enough:
            kept.append(end)
            expected = 0.0
    if expected and len(kept) > 1:
        kept.pop()
    return kept if kept[-1] == edges[-1] else [*kept, int(edges[-1])]


def _masses(noise: Noise, edges: Integers) -> tuple[Floats, Floats, Floats]:
    # Differences of the distribution function on the side of the median where it is small, and
    # the mass itself where a cell is one value.
    below, above = noise.cdf(edges - 1), noise.sf(edges - 1)
    left, right = np.concatenate(([0.0], below)), np.concatenate((above, [0.0]))
    from_left = np.concatenate((below, [1.0])) - left
    from_right = np.concatenate(([1.0], above)) - right
    use_left = np.concatenate((below, [1.0])) <= 0.5
    mass = np.where(use_left, from_left, from_right)
    error = np.where(use_left, np.append(below, 1.0), np.append(1.0, above)) * _ERROR
    single = 1 + np.flatnonzero(np.diff(edges) == 1)
    if len(single):
        mass[single] = noise.pmf(edges[single - 1])
        error[single] = mass[single] * _ERROR
    mass = np.maximum(mass, 0.0)
    upper = np.minimum(mass + error + _LEAST, 1.0)
    return np.maximum(mass - error - _LEAST, 0.0), np.minimum(mass, 1.0), upper


def _scores(noise: Noise, edges: Integers, nominal: Floats) -> tuple[Floats, float]:
    # Any fixed numbers are valid scores. A tail counts as its nearest value.
    mean = noise.mean
    centre = float(mean) if isinstance(mean, Fraction) else mean.lower_float
    starts = edges.astype(np.float64)
    middle = (starts[:-1] + starts[1:] - 1) / 2
    values = np.concatenate(([starts[0] - 1], middle, [starts[-1]])) - centre
    mass = nominal / nominal.sum()
    distance = np.abs(values)
    rows = []
    for score in (values, distance, values**2):
        centred = score - mass @ score
        size = math.sqrt(float(mass @ centred**2))
        if size > 0:
            rows.append(centred / size)
    typical = float(mass @ distance)
    variance = float(mass @ (distance - typical) ** 2)
    spread = math.sqrt(variance) / typical if typical > 0 and variance > 0 else math.inf
    return np.array(rows).reshape(len(rows), len(mass)), spread


def _largest_mass(noise: Noise) -> float:
    # Bobkov, Marsiglietti and Melbourne 2022, Theorem 1.1: at most 2/sqrt(1 + 4 Var) for a
    # log-concave law on the integers.
    variance = noise.variance
    least = float(variance) if isinstance(variance, Fraction) else variance.lower_float
    return 2 / math.sqrt(1 + 4 * least) * (1 + _ERROR)
