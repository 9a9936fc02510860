r"""Hypothesis strategies: privacy parameters, noise, and pairs of neighbouring datasets.

    @given(neighbouring_histograms(bins=4, relation="add-remove"))
    def test_the_count_changes_by_one(pair):
        assert_sensitivity(sum, [pair], 1)

Datasets are integers and lists, so that a pair can be passed to any target, including ``exec:``
programs. The two datasets of a pair always differ, and either may be the larger. The module
requires hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, TypeVar

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.staircase import Staircase
from dpcore.mechanism import Norm, Relation, Sensitivity, Unit
from dpcore.noise import Noise
from dpcore.numbers.parameter import Choice, RationalLike, integer, rational
from dpcore.spec_syntax import find_name

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ImportError as error:
    raise ImportError(
        "audit.testing.strategies needs hypothesis: pip install hypothesis"
    ) from error

_T = TypeVar("_T")
_Pair = tuple[list[Any], list[Any]]
_FAR: Final = 10**6
_FINEST: Final = 1000


def epsilons(
    at_least: RationalLike = "1/1000", at_most: RationalLike = 10
) -> SearchStrategy[Fraction]:
    r"""Generate epsilons, as fractions, from ``at_least`` >= 0 to ``at_most``.

    >>> from hypothesis import find
    >>> find(epsilons("1/2", 1), lambda epsilon: epsilon < 1) < 1
    True
    """
    low, high = _span("epsilon", at_least, at_most)
    return st.fractions(low, high)


def deltas(at_least: RationalLike = 0, at_most: RationalLike = "1/10") -> SearchStrategy[Fraction]:
    r"""Generate deltas, as fractions, from ``at_least`` >= 0 to ``at_most`` < 1.

    Many of them are 0 or powers of ten.

    >>> from hypothesis import find
    >>> find(deltas(), lambda delta: delta > 0) <= Fraction(1, 10)
    True
    """
    low, high = _span("delta", at_least, at_most)
    if high >= 1:
        raise InvalidParameter("at_most", at_most, "must be < 1: delta = 1 gives no privacy")
    powers = [Fraction(1, 10**k) for k in range(16, 0, -1)]
    usual = [delta for delta in (Fraction(), *powers) if low <= delta <= high]
    anything = st.fractions(low, high)
    return st.one_of(st.sampled_from(usual), anything) if usual else anything


def _span(name: str, at_least: RationalLike, at_most: RationalLike) -> tuple[Fraction, Fraction]:
    low, high = rational("at_least", at_least), rational("at_most", at_most)
    if low < 0:
        raise InvalidParameter("at_least", at_least, f"must be >= 0, like every {name}")
    if high < low:
        raise InvalidParameter("at_most", at_most, f"must be >= at_least = {low}")
    return low, high


def _positive(at_most: int) -> SearchStrategy[Fraction]:
    return st.fractions(Fraction(1, 10), at_most, max_denominator=_FINEST)


# Parameters of moderate size, for which a draw takes well under a millisecond.
_NOISES: Final[Mapping[str, SearchStrategy[Noise]]] = MappingProxyType(
    {
        DiscreteLaplace.name: st.builds(DiscreteLaplace, scale=_positive(100)),
        DiscreteGaussian.name: st.builds(DiscreteGaussian, sigma_squared=_positive(1000)),
        DiscreteGaussianSum.name: st.builds(
            DiscreteGaussianSum, count=st.integers(1, 16), sigma_squared=_positive(100)
        ),
        Staircase.name: st.builds(
            Staircase, epsilon=_positive(10), sensitivity=st.integers(1, 100)
        ),
        Skellam.name: st.builds(Skellam, variance=_positive(1000)),
        Polya.name: st.builds(Polya, shape=_positive(4), scale=_positive(20)),
        PolyaDifference.name: st.builds(PolyaDifference, shape=_positive(4), scale=_positive(20)),
        Poisson.name: st.builds(Poisson, mean=_positive(1000)),
        Binomial.name: st.builds(
            Binomial,
            trials=st.integers(1, 1000),
            probability=st.fractions(
                Fraction(1, _FINEST), 1 - Fraction(1, _FINEST), max_denominator=_FINEST
            ),
        ),
    }
)


def noises(*laws: str) -> SearchStrategy[Noise]:
    r"""Generate noise of the named laws, by default of all laws of dpcore.

    >>> from hypothesis import find
    >>> find(noises("skellam"), bool).name
    'skellam'
    """
    return st.one_of([find_name("law", law, _NOISES) for law in laws or _NOISES])


def sensitivities(
    *norms: Norm | str, at_most: int = 10, dimension: int = 3
) -> SearchStrategy[Sensitivity]:
    r"""Generate sensitivities in the named norms, by default in all norms.

    A box sensitivity has ``dimension`` bounds.

    >>> from hypothesis import find
    >>> find(sensitivities("l1"), bool).norm
    <Norm.L1: 'l1'>
    """
    amounts = st.integers(1, integer("at_most", at_most, at_least=1))
    size = integer("dimension", dimension, at_least=1)
    bounds = st.lists(amounts, min_size=size, max_size=size).map(tuple)
    chosen = [Choice(Norm).read("norm", norm) for norm in norms] or list(Norm)
    return st.one_of(
        [
            st.builds(Sensitivity, bounds if norm is Norm.BOX else amounts, st.just(norm))
            for norm in chosen
        ]
    )


def neighbouring_integers(
    apart: int = 1, *, at_least: int = -_FAR, at_most: int = _FAR
) -> SearchStrategy[tuple[int, int]]:
    r"""Generate pairs of integers with 1 <= \|a - b\| <= ``apart``.

    >>> from hypothesis import find
    >>> a, b = find(neighbouring_integers(3), bool)
    >>> 1 <= abs(a - b) <= 3
    True
    """
    most = integer("apart", apart, at_least=1)
    low, high = integer("at_least", at_least), integer("at_most", at_most)
    if high - low < most:
        raise InvalidParameter("at_most", at_most, f"must be >= at_least + apart = {low + most}")

    @st.composite
    def pairs(draw: st.DrawFn) -> tuple[int, int]:
        step = draw(st.integers(1, most))
        one = draw(st.integers(low, high - step))
        return _either_way(draw, one, one + step)

    return pairs()


def _either_way(draw: st.DrawFn, one: _T, other: _T) -> tuple[_T, _T]:
    return (one, other) if draw(st.booleans()) else (other, one)


@st.composite
def _vectors(draw: st.DrawFn, sensitivity: Sensitivity, size: int, farthest: int) -> _Pair:
    # At least one coordinate changes; each coordinate takes a part of the remaining amount.
    sure = draw(st.integers(0, size - 1))
    moves = [0] * size
    left = sensitivity.amount
    for i in (sure, *(i for i in range(size) if i != sure)):
        match sensitivity.norm, left:
            case Norm.BOX, tuple(bounds):
                most = bounds[i]
            case Norm.L2_SQUARED, int(rest):
                most = math.isqrt(rest)
            case _, int(rest):
                most = rest
            case _:
                raise InvalidParameter("sensitivity", sensitivity, "has an unsupported norm")
        step = draw(st.integers(1 if i == sure else 0, most))
        moves[i] = step if draw(st.booleans()) else -step
        if isinstance(left, int):
            left -= step * step if sensitivity.norm is Norm.L2_SQUARED else step
    one = draw(st.lists(st.integers(-farthest, farthest), min_size=size, max_size=size))
    return one, [x + move for x, move in zip(one, moves, strict=True)]


def neighbouring_vectors(
    sensitivity: Sensitivity | int = 1, *, dimension: int = 1, farthest: int = _FAR
) -> SearchStrategy[_Pair]:
    r"""Generate pairs of lists of ``dimension`` integers that differ by at most ``sensitivity``.

    For a box sensitivity, the dimension is the number of its bounds; for an integer, it must be 1.
    One of the two lists has entries in [-``farthest``, ``farthest``].

    >>> from hypothesis import find
    >>> one, other = find(neighbouring_vectors(Sensitivity.l1(2), dimension=2), bool)
    >>> 1 <= sum(abs(x - y) for x, y in zip(one, other, strict=True)) <= 2
    True
    """
    declared = Sensitivity.of(sensitivity)
    size = integer("dimension", dimension, at_least=1)
    if isinstance(declared.amount, tuple):
        if size not in {1, len(declared.amount)}:
            reason = f"must be {len(declared.amount)}, the number of bounds of the sensitivity"
            raise InvalidParameter("dimension", dimension, reason)
        size = len(declared.amount)
    elif declared.norm is Norm.ABSOLUTE and size != 1:
        reason = (
            "must be 1 for a sensitivity of one number: for vectors write Sensitivity.l1(d), or "
            "another norm"
        )
        raise InvalidParameter("dimension", dimension, reason)
    return _vectors(declared, size, integer("farthest", farthest, at_least=0))


def neighbouring_datasets(
    records: SearchStrategy[Any], *, relation: Relation | str = Relation.REPLACE, most: int = 20
) -> SearchStrategy[_Pair]:
    r"""Generate pairs of lists of at most ``most`` records that differ in one record.

    Under "replace" the record is replaced; under "add-remove" the record is added or removed.

    >>> from hypothesis import find
    >>> one, other = find(neighbouring_datasets(st.just(5), relation="add-remove"), bool)
    >>> abs(len(one) - len(other))
    1
    """
    size, kind = integer("most", most, at_least=1), Choice(Relation).read("relation", relation)

    @st.composite
    def pairs(draw: st.DrawFn) -> _Pair:
        shorter = draw(st.lists(records, max_size=size - 1))
        place = draw(st.integers(0, len(shorter)))
        record = draw(records)
        longer = [*shorter[:place], record, *shorter[place:]]
        if kind is Relation.ADD_REMOVE:
            return _either_way(draw, shorter, longer)
        replaced = draw(records.filter(lambda other: other != record))
        return longer, [*shorter[:place], replaced, *shorter[place:]]

    return pairs()


def neighbouring_histograms(
    *, bins: int = 4, relation: Relation | str = Relation.REPLACE, most: int = 100
) -> SearchStrategy[_Pair]:
    r"""Generate pairs of lists of counts that differ by one person.

    Under "replace" the person is in another bin; under "add-remove" the person is added or removed.

    >>> from hypothesis import find
    >>> one, other = find(neighbouring_histograms(bins=2), bool)
    >>> sorted(x - y for x, y in zip(one, other, strict=True))
    [-1, 1]
    """
    kind = Choice(Relation).read("relation", relation)
    size = integer("bins", bins, at_least=2 if kind is Relation.REPLACE else 1)
    counts = st.integers(0, integer("most", most, at_least=0))

    @st.composite
    def pairs(draw: st.DrawFn) -> _Pair:
        one = draw(st.lists(counts, min_size=size, max_size=size))
        place = draw(st.integers(0, size - 1))
        other = list(one)
        other[place] += 1
        if kind is Relation.REPLACE:
            there = (place + draw(st.integers(1, size - 1))) % size
            one[there] += 1  # one person moves from ``there`` to ``place``
        return _either_way(draw, one, other)

    return pairs()


def neighbouring_streams(
    events: SearchStrategy[Any],
    *,
    steps: int = 10,
    users: int = 3,
    unit: Unit | str = Unit.CONTRIBUTION,
    relation: Relation | str = Relation.REPLACE,
) -> SearchStrategy[_Pair]:
    r"""Generate pairs of streams of ``steps`` entries, each [user, event], or None for no event.

    The streams differ in one event, or, if ``unit`` is "user", in any number of events of one user.
    These events are replaced by other events, or removed if ``relation`` is "add-remove".

    >>> from hypothesis import find
    >>> pairs = neighbouring_streams(st.integers(0, 1), steps=2, relation="add-remove")
    >>> one, other = find(pairs, bool)
    >>> [x is None or y is None for x, y in zip(one, other, strict=True) if x != y]
    [True]
    """
    size, most = integer("steps", steps, at_least=1), integer("users", users, at_least=1) - 1
    by_user = Choice(Unit).read("unit", unit) is Unit.USER
    removed = Choice(Relation).read("relation", relation) is Relation.ADD_REMOVE

    @st.composite
    def pairs(draw: st.DrawFn) -> _Pair:
        place, who = draw(st.integers(0, size - 1)), draw(st.integers(0, most))
        step = st.one_of(st.none(), st.tuples(st.integers(0, most), events).map(list))
        one = draw(st.lists(step, min_size=size, max_size=size))
        happened = draw(events)
        one[place] = [who, happened]
        other = list(one)
        for i, entry in enumerate(one):
            if i == place or (by_user and entry is not None and entry[0] == who):
                instead = events.filter(lambda event: event != happened) if i == place else events
                other[i] = None if removed else [who, draw(instead)]
        return _either_way(draw, one, other)

    return pairs()
