r"""Near-G-optimal designs for linear bandits: which actions to play, and how often.

A design pi gives each active action x a weight pi(x) >= 0; the weights sum to 1. Let V be the sum
of pi(x) x x^T over these actions. The value of the design is the largest x^T V^-1 x of an active
action x. If each x is played in h pi(x) rounds with rewards of variance 1, no estimated mean reward
has a variance above value/h. The smallest possible value is the dimension d of the span of the
active actions (Kiefer and Wolfowitz 1960). Elimination needs only a value of at most 2d, for which
few actions suffice. If the span is not the whole space, the design is computed in coordinates of
the span (Li, Zhou and Ji 2022, Remark 3.2).

The stated value of a design is an upper bound on its true value. It is computed from an approximate
inverse A of V and a bound on the residual R = I - A V, which includes the rounding errors of all
sums (Higham 2002, section 3.1). Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from bandits.actions import Actions
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.numbers.parameter import integer

_UNIT: Final = 2.0**-53
_RANK: Final = 1e-9
_LEAST: Final = 1e-100
_AIM: Final = 1.9
_APART: Final = 8
_SWAPS: Final = 200
_STEPS: Final = 20_000
_REFRESH: Final = 64
_GAIN: Final = 1 + 1e-6
_ALIKE: Final = 1e-9
_FAR: Final = 0.5
_LEAST_FOR_LOGS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    r"""A design on the active actions, with a proven upper bound on its value.

    ``support`` contains the indices of the actions with a positive weight, and ``weights`` their
    weights, with sum about 1. ``basis`` has ``rank`` orthonormal columns, which span the active
    actions. ``value`` is the bound on the largest x^T V^-1 x (see the module), for the
    floating-point coordinates of the actions in ``basis``.
    """

    support: tuple[int, ...]
    weights: Floats
    basis: Floats
    value: float

    @property
    def rank(self) -> int:
        r"""The dimension of the span of the active actions."""
        return int(self.basis.shape[1])

    def times(self, h: int) -> tuple[int, ...]:
        r"""The number of plays ceil(h pi(x)) of each action x of the support, with weight pi(x)."""
        return tuple(math.ceil(h * weight) for weight in self.weights.tolist())


def most_support(dimension: int) -> int:
    r"""An upper bound on the number of actions in a :func:`near_optimal_design` in d dimensions.

    It is d (d+1)/2, which always suffices, or 4 d ln ln d + 16 if d >= 3 and this is larger.
    """
    d = integer("dimension", dimension, at_least=1)
    few = d * (d + 1) // 2
    if d < _LEAST_FOR_LOGS:
        return few
    return max(few, math.floor(4 * d * math.log(math.log(d)) + 16))


def near_optimal_design(actions: Actions, active: tuple[int, ...]) -> Design:
    r"""Find a design on the ``active`` actions whose proven value is at most twice its ``rank``."""
    if not active:
        raise InvalidParameter("active", active, "must contain at least one action")
    points = actions.points[list(active)]
    basis = _span(points)
    if not basis.shape[1]:
        raise InvalidParameter("actions", active, "must contain a nonzero action")
    if np.abs(points).max() < _LEAST:
        raise InvalidParameter(
            "actions",
            active,
            f"must contain an action with an entry >= {_LEAST} in absolute value",
        )
    # Scaling by powers of two is exact and changes no value; there is one common power unless the
    # sizes differ a lot.
    held = np.ldexp(points @ basis, -int(np.frexp(np.abs(points).max())[1]))
    powers = np.frexp(np.abs(held).max(axis=0))[1]
    if np.ptp(powers) > _APART:
        held = np.ldexp(held, -powers)
    weights = _weights(held)
    value = _certified(held, weights)
    chosen = np.flatnonzero(weights)
    rank = basis.shape[1]
    if not value <= 2 * rank or len(chosen) > most_support(rank):
        raise DpcoreError(
            f"no design on {len(active)} actions of rank {rank} has a proven value of at most "
            "twice the rank: the sizes of the entries differ too much; rescale the actions"
        )
    support = tuple(active[i] for i in chosen.tolist())
    return Design(support=support, weights=weights[chosen], basis=basis, value=value)


def _span(points: Floats) -> Floats:
    # Orthonormal columns; directions with singular value below 1e-9 of the largest are dropped.
    _, sizes, rows = np.linalg.svd(points, full_matrices=False)
    rank = int((sizes > _RANK * sizes[0]).sum()) if sizes.size and sizes[0] > 0 else 0
    found: Floats = np.ascontiguousarray(rows[:rank].T)
    return found


def _weights(held: Floats) -> Floats:
    # Any weights are valid, because the value of the returned design is certified.
    count, d = held.shape
    weights = np.zeros(count)
    weights[_spanning(held)] = 1 / d
    inverse = np.linalg.inv((held * weights[:, None]).T @ held)
    for step in range(1, _STEPS + 1):
        values = ((held @ inverse) * held).sum(axis=1)
        worst = _first_of_largest(values)
        if values[worst] <= _AIM * d and np.count_nonzero(weights) <= most_support(d):
            break
        # Wynn and Fedorov: the step along this action that increases det V most.
        size = values[worst]
        move = (size - d) / (d * (size - 1)) if size > 1 else 0.0
        if move <= 0:
            break
        weights *= 1 - move
        weights[worst] += move
        if step % _REFRESH == 0:
            inverse = np.linalg.inv((held * weights[:, None]).T @ held)
            continue
        toward = inverse @ held[worst]
        inverse /= 1 - move
        toward /= 1 - move
        inverse -= move / (1 + move * float(held[worst] @ toward)) * np.outer(toward, toward)
    return weights


def _spanning(held: Floats) -> list[int]:
    # d actions with large volume: a greedy choice, then swaps that increase the volume by half.
    rest = held.copy()
    chosen: list[int] = []
    for _ in range(held.shape[1]):
        lengths = (rest * rest).sum(axis=1)
        place = _first_of_largest(lengths)
        chosen.append(place)
        along = rest[place] / math.sqrt(lengths[place])
        rest -= np.outer(rest @ along, along)
    for _ in range(_SWAPS):
        # Cramer: replacing action j by x changes the volume by the factor |coordinate j of x|.
        factors = np.abs(np.linalg.solve(held[chosen].T, held.T))
        j, x = divmod(_first_of_largest(factors.ravel()), factors.shape[1])
        if factors[j, x] <= _GAIN:
            break
        chosen[j] = x
    return chosen


def _first_of_largest(values: Floats) -> int:
    # Actions of equal length tie; the summation order of the processor must not decide ties.
    return int((values >= (1 - _ALIKE) * values.max()).argmax())


def _certified(held: Floats, weights: Floats) -> float:
    # An upper bound on max_x x^T V^-1 x over the rows x of ``held``, with V = sum pi(x) x x^T.
    used = np.flatnonzero(weights)
    points, pi = held[used], weights[used]
    count, d = points.shape
    about = (points * pi[:, None]).T @ points
    try:
        inverse = np.linalg.inv((about + about.T) / 2)
    except np.linalg.LinAlgError:
        return math.inf
    inverse = (inverse + inverse.T) / 2
    grown = np.abs(inverse)
    sizes = np.abs(points)
    # The error of every entry of V is at most gamma_{n+2} times the sum of absolute values.
    off = _gamma(count + 2) * ((sizes * pi[:, None]).T @ sizes)
    residual = np.abs(np.eye(d) - inverse @ about)
    residual += _gamma(d + 2) * (np.eye(d) + grown @ np.abs(about)) + 2 * (grown @ off)
    far = float(np.sqrt((residual * residual).sum())) * (1 + 1e-9)
    if not far < _FAR:
        return math.inf
    # V^-1 = (A V)^-1 A = A + ((I - R)^-1 - I) A; the second term has norm <= far/(1-far) |A|.
    norm = float(np.sqrt((inverse * inverse).sum())) * (1 + 1e-9)
    lengths = (held * held).sum(axis=1) * (1 + 1e-9)
    values = ((held @ inverse) * held).sum(axis=1)
    values += 2 * _gamma(2 * d + 2) * ((np.abs(held) @ grown) * np.abs(held)).sum(axis=1)
    values += far / (1 - far) * norm * lengths
    return float(values.max()) * (1 + 1e-12)


def _gamma(n: int) -> float:
    # A bound on the relative error of a sum of n products in any order.
    return 1.01 * n * _UNIT
