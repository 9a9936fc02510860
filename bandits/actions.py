r"""Finite action sets of linear bandits, and the reward model that the server knows."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.numbers.integer_search import ceil_sqrt
from dpcore.numbers.parameter import (
    Exact,
    Of,
    RationalLike,
    check_fields,
    integer,
    positive_rational,
)
from dpcore.spec_syntax import check_word

Shape: TypeAlias = Literal["ball", "box"]
r"""An infinite set of actions: the unit ball, or its largest box [-a, a]^d, a = 1/sqrt d."""

_LONGEST = 1 + 1e-12
_MOST_ACTIONS = 1 << 16
_MOST_DIMENSION = 256
_MOST_CELLS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Actions:
    r"""A finite set of actions, given by the rows of ``points``; each row has norm at most 1."""

    points: Floats

    def __post_init__(self) -> None:
        given = self.points
        if not isinstance(given, np.ndarray) or given.dtype.kind not in "iuf" or given.ndim != 2:
            raise InvalidParameter(
                "actions", given, "must be a 2-d array of numbers, one action per row"
            )
        own = np.ascontiguousarray(given, dtype=np.float64).copy()
        count, dimension = own.shape
        if not 1 <= count <= _MOST_ACTIONS or not 1 <= dimension <= _MOST_DIMENSION:
            reason = "the array must have 1 to 65536 rows (actions) and 1 to 256 columns"
            raise InvalidParameter("actions", own.shape, reason)
        if not np.isfinite(own).all():
            raise InvalidParameter("actions", "nan or infinity", "must contain only finite numbers")
        longest = float(np.sqrt((own * own).sum(axis=1)).max())
        if longest > _LONGEST:
            raise InvalidParameter("actions", longest, "the largest norm must be at most 1")
        own.flags.writeable = False
        object.__setattr__(self, "points", own)

    @property
    def count(self) -> int:
        return len(self.points)

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Actions) and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        return hash((self.points + 0.0).tobytes())  # -0.0 equals 0.0

    def __repr__(self) -> str:
        return f"Actions({self.count} of dimension {self.dimension})"

    def __str__(self) -> str:
        # The digest of a world contains this hash of the shape and the coordinates.
        return hashlib.sha256(repr(self.points.shape).encode() + self.points.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModel:
    r"""The model of a linear bandit: action x gives user u the reward <theta_u, x> plus noise.

    Here theta_u = theta* + xi_u with |theta*| <= 1. The vector xi_u is sub-Gaussian with parameter
    sigma = ``deviation`` in every direction, and the noise is 1-sub-Gaussian. Privatizers clip each
    average reward that a user sends to [-B, B], where B = ``bound``. If ``bounded`` is true,
    rewards lie in [-B, B], so clipping changes nothing. Otherwise xi_u and the noise are assumed to
    be normal with standard deviations sigma and 1, so that the effect of clipping is bounded.
    """

    actions: Of[Actions] = Of(Actions, "must be Actions")
    deviation: Exact = Exact(within="[0, 1]")
    bound: Exact = Exact(2, zero="bound 0 clips every reward to 0")
    bounded: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.bound < 1:
            raise InvalidParameter(
                "bound", self.bound, "must be >= 1, because mean rewards lie in [-1, 1]"
            )


def cover(shape: Shape, dimension: int, radius: RationalLike) -> Actions:
    r"""Build a finite set of actions that covers ``shape`` up to the distance ``radius``.

    Each point of the shape is within ``radius`` of an action. The shape is the unit ball, or the
    largest box in the ball with sides along the axes. Because |theta*| <= 1, the best of these
    actions is worse than the best point of ``shape`` by at most ``radius`` per round (Li, Zhou and
    Ji 2022, Remark 3.1).

    The actions are the centres of the cells of a grid. Half the diagonal of a cell is at most
    ``radius``, and centres outside the ball are projected onto it. In d dimensions a box needs
    ceil(1/radius)^d actions; a ball needs fewer than the (3/radius)^d actions in the remark.
    """
    check_word("shape", shape, Shape)
    d = integer("dimension", dimension, at_least=1)
    exact = positive_rational("radius", radius, "a finite cover needs a positive radius")
    if exact > 1:
        raise InvalidParameter("radius", radius, "must be <= 1")
    far, half = float(exact), 1.0 if shape == "ball" else 1 / math.sqrt(d)
    # The sides of a cell are at most 2 radius/sqrt d.
    count = ceil_sqrt((d if shape == "ball" else 1) / exact**2)
    remedy = ": use a larger radius or fewer dimensions"
    if d > _MOST_DIMENSION:
        raise InvalidParameter("dimension", dimension, f"must be <= {_MOST_DIMENSION}")
    if count**d > _MOST_CELLS:
        reason = f"needs a grid of {count}^{d} cells, above the limit of {_MOST_CELLS}{remedy}"
        raise InvalidParameter("radius", radius, reason)
    middles = [half * (2 * i + 1 - count) / count for i in range(count)]
    points = np.array([*product(middles, repeat=d)])
    lengths = np.sqrt((points * points).sum(axis=1))
    kept = points[lengths <= 1 + far]
    outside = np.maximum(lengths[lengths <= 1 + far], 1)[:, None]
    if len(kept) > _MOST_ACTIONS:
        reason = f"needs {len(kept)} actions, above the limit of {_MOST_ACTIONS}{remedy}"
        raise InvalidParameter("radius", radius, reason)
    return Actions(kept / outside)
