r"""What an experiment may be asked for: each argument is refused by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from bandits.play import checked_checkpoints
from bandits.policies.registry import Algorithm, WorldKind
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer, rational, rational_in

__all__ = [
    "check_delta",
    "check_epsilons",
    "check_named",
    "check_worlds",
    "checked_rounds",
    "float_up",
    "spaced_checkpoints",
]

_LEAST_EPSILON: Final = Fraction(1, 10**6)
_MOST_EPSILON: Final = Fraction(10**3)
# Exact tables of shuffled bits take minutes beyond these.
_LEAST_OF_BITS: Final = Fraction(1, 10**2)
_LEAST_DELTA_OF_BITS: Final = Fraction(1, 10**30)
_POINTS: Final = 81
_DECADES: Final = 4
_PURE_SHUFFLE: Final = "shuffled-se"
# Below it the long messages of a pure shuffle take minutes to certify, or cannot be.
_LEAST_OF_MESSAGES: Final = Fraction(1, 10)
_BITS: Final = ("sdp-ae", "vb-sdp-ae", "sdp-dpe", "sdp-pe")


def float_up(exact: Fraction) -> float:
    r"""The least float whose shortest decimals, which are what is printed, are no smaller.

    >>> float_up(Fraction("0.3")), float_up(Fraction(1, 3))
    (0.3, 0.33333333333333337)
    """
    nearest = float(exact)
    return nearest if Fraction(repr(nearest)) >= exact else math.nextafter(nearest, math.inf)


def check_named(argument: str, values: Sequence[object]) -> None:
    r"""Refuse no ``values``, and one that is there twice."""
    if not values:
        raise InvalidParameter(argument, ABSENT, "must name one or more")
    if len(set(values)) < len(values):
        raise InvalidParameter(argument, ", ".join(map(str, values)), "names one twice")


def check_worlds(algorithms: Sequence[Algorithm], kind: WorldKind) -> None:
    r"""Refuse an algorithm that is played in another kind of world."""
    kinds = {
        "arms": "independent arms, such as cz/easy",
        "linear": "linear rewards, as lzj/fig2",
        "combinatorial": "super arms, as csb/topk",
    }
    for entry in (each.entry for each in algorithms):
        if entry.world != kind:
            reason = f"is played in worlds with {kinds[entry.world]}"
            raise InvalidParameter("algorithms", entry.name, reason)


def check_delta(given: RationalLike, names: Sequence[str]) -> None:
    r"""Refuse a delta outside of (0, 1), or that an algorithm cannot keep."""
    delta = rational_in("delta", given, "(0, 1)")
    for name in names:
        if name in _BITS and delta < _LEAST_DELTA_OF_BITS:
            raise InvalidParameter("delta", given, f"must be >= 1e-30 for {name}")


def check_epsilons(epsilons: Sequence[RationalLike], names: Sequence[str], radius: str) -> None:
    r"""Refuse epsilons that an algorithm cannot be made for, and two of one float."""
    least = {name: _LEAST_OF_BITS for name in names if name in _BITS}
    if radius == "exact" and _PURE_SHUFFLE in names:
        least[_PURE_SHUFFLE] = _LEAST_OF_MESSAGES
    for given in epsilons:
        epsilon = rational("epsilon", given)
        if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
            raise InvalidParameter("epsilon", given, "must lie in [1e-6, 1000]")
        for name, end in least.items():
            if epsilon < end:
                raise InvalidParameter("epsilon", given, f"must be >= {float(end):g} for {name}")
    if len({float_up(rational("epsilon", given)) for given in epsilons}) < len(epsilons):
        reason = "names one twice: two of them are printed as the same float"
        raise InvalidParameter("epsilon", ", ".join(map(str, epsilons)), reason)


def spaced_checkpoints(horizon: int, points: int = _POINTS) -> tuple[int, ...]:
    r"""At most ``points`` rounds up to the horizon, evenly spaced by ratio over four powers of ten.

    >>> spaced_checkpoints(10**5, 5), spaced_checkpoints(20, 3)
    ((10, 100, 1000, 10000, 100000), (1, 20))
    """
    rounds = integer("horizon", horizon, at_least=1)
    count = integer("points", points, at_least=1)
    steps = max(count - 1, 1)
    found = {math.ceil(rounds * 10 ** (-_DECADES * i / steps)) for i in range(count)}
    return tuple(sorted(found))


def checked_rounds(checkpoints: Sequence[int], horizon: int) -> tuple[int, ...]:
    r"""The rounds that are given, or :func:`spaced_checkpoints`.

    Raises :class:`InvalidParameter` for rounds that do not rise, or do not end with the horizon.
    """
    if not checkpoints:
        return spaced_checkpoints(horizon)
    exact = checked_checkpoints(checkpoints, horizon)
    if exact[-1] != horizon:
        reason = f"must rise, and end with the horizon, {horizon}"
        raise InvalidParameter("checkpoints", checkpoints, reason)
    return exact
