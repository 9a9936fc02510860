r"""A compiled loop that plays rounds of CUCB, for super arms that are unions of groups.

The loop plays one run after another, whereas ``bandits.play_combinatorial.Game`` plays all runs
together as arrays. Both add the same floats in the same order, so results are equal for equal
seeds. The loop is compiled by numba (``dpcore[fast]``); without numba ``Game`` is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from bandits.policies.combinatorial_ucb import Cucb
from bandits.privatizers.continual_sums_per_arm import Tables
from bandits.super_arms import Bools, Unions
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats, Integers

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: Final = ("plain", "each", "tree", "doubling", "factorisation")
_TREE, _DOUBLING = 2, 3


def _jit(**options: Any) -> Callable[[F], F]:
    # Without numba the rounds are interpreted; only tests use this.
    def compiled(function: F) -> F:
        if find_spec("numba") is None:
            return function
        found: F = import_module("numba").njit(error_model="numpy", **options)(function)
        return found

    return compiled


class Loop(NamedTuple):
    r"""The parameters of the compiled loop; group g is members[starts[g]:starts[g + 1]]."""

    kind: int
    least: bool
    picked: int
    tie: float
    clip: float
    block: int
    starts: Integers
    members: Integers
    bonus: Floats


def loop_of(policy: Cucb, tie: float) -> Loop:
    r"""The loop parameters of ``policy``, whose super arms must be unions of groups."""
    sets = policy.problem.decisions
    if not isinstance(sets, Unions):
        raise InvalidParameter(
            "decisions", sets, "must be Unions; other decisions are not compiled"
        )
    return Loop(
        kind=_KINDS.index(policy.privatizer.kind),
        least=policy.least,
        picked=sets.chosen,
        tie=tie,
        clip=float(policy.clip),
        block=policy.privatizer.block,
        starts=np.array([0, *accumulate(map(len, sets.groups))], dtype=np.int64),
        members=np.array([*chain.from_iterable(sets.groups)], dtype=np.int64),
        bonus=policy.bonuses(),
    )


@_jit(inline="always")
def _choose(values: Floats, picked: int, low: float, chosen: Bools) -> float:
    # Selects the ``picked`` largest values: all values >= ``low`` if there are ``picked`` of them,
    # otherwise by the number of larger values. Returns a threshold for the next call.
    m, found = len(values), 0
    for g in range(m):
        chosen[g] = values[g] >= low
        found += chosen[g]
    if found == picked:
        return low
    found, least, most = 0, np.inf, -np.inf
    for g in range(m):
        own, above = values[g], 0
        for other in range(m):
            above += values[other] > own
        chosen[g] = above < picked
        found += chosen[g]
        least = min(least, own if chosen[g] else np.inf)
        most = max(most, -np.inf if chosen[g] else own)
    if found != picked:  # ties go to the first
        for g in range(m):
            above = 0
            for other in range(m):
                above += values[other] > values[g] or (values[other] == values[g] and other < g)
            chosen[g] = above < picked
    return (least + most) / 2


@_jit(inline="always")
def _groups(loop: Loop, values: Floats, sums: Floats) -> None:
    # Computes the sum of the values of each group.
    for g in range(len(sums)):
        sums[g] = 0.0
        for at in range(loop.starts[g], loop.starts[g + 1]):
            sums[g] += values[loop.members[at]]


@_jit(inline="always")
def _members(loop: Loop, best: Bools, chosen: Bools) -> None:
    # Marks the base arms of the best groups.
    for g in range(len(best)):
        for at in range(loop.starts[g], loop.starts[g + 1]):
            chosen[loop.members[at]] = best[g]


@_jit(inline="always")
def _zeros(n: int) -> int:
    # The number of trailing zeros of n > 0 in binary.
    found = 0
    while not (n >> found) & 1:
        found += 1
    return found


@_jit(inline="always")
def _tree(n: int, drawn: int, noise: Any) -> Any:
    # The noise of the sum of n outcomes; see `Totals._tree`.
    level = _zeros(n)
    others = _zeros(n ^ (1 << level)) if n >> (level + 1) else len(noise) - 1
    noise[level] = noise[others] + drawn
    return noise[level]


@_jit(cache=True, fastmath={"reassoc", "contract"})
def _product(column: Any, items: Any) -> Any:
    # Sums of integers do not depend on the order.
    total = column[0] * 0
    for i in range(len(items)):
        total += column[i] * items[i]
    return total


@_jit(cache=True)
def _factorised(items: Any, noised: Any, column: Any, inverse: Floats) -> float:
    # All arrays end with the newest item or its weight. Four separate sums run in parallel.
    size = len(items)
    noised[-1] += _product(column, items)
    one = two = three = four = 0.0
    for i in range(size % 4, size, 4):
        one += inverse[i] * noised[i]
        two += inverse[i + 1] * noised[i + 1]
        three += inverse[i + 2] * noised[i + 2]
        four += inverse[i + 3] * noised[i + 3]
    value = (one + two) + (three + four)
    for i in range(size % 4):
        value += inverse[i] * noised[i]
    return value


@_jit(inline="always")
def _fewest(taken: Integers, ties: Floats, tie: float, chosen: Bools) -> int:
    # The chosen base arm with the fewest outcomes.
    only, fewest = -1, np.inf
    for j in range(len(chosen)):
        size = taken[j] + ties[j] * tie
        if chosen[j] and size < fewest:
            only, fewest = j, size
    return only


@_jit(cache=True)
def play_rounds(  # noqa: C901, PLR0912  # calls in the inner loop are slow
    loop: Loop,
    tables: Tables,
    state: tuple[Floats, Integers],
    public: Floats,
    outcomes: Bools,
    noise: Integers,
    played: Bools,
) -> None:
    r"""Play all rounds: update ``tables`` and ``state``, and fill ``played`` with super arms."""
    runs, rounds, arms = played.shape
    (bounds, sent), groups = state, len(loop.starts) - 1
    kind, least, tie, clip, picked = loop.kind, loop.least, loop.tie, loop.clip, loop.picked
    taken, exact, counts, value = tables.taken, tables.exact, tables.counts, tables.values
    bonus, held, items, block = loop.bonus, tables.noise, tables.items, loop.block
    column, inverse = tables.column, tables.inverse
    values, sums, best = np.empty(arms), np.empty(groups), np.empty(groups, np.bool_)
    for i in range(runs):
        low = np.inf
        for t in range(rounds):
            chosen = played[i, t]
            for j in range(arms):
                values[j] = bounds[i, j] + public[i, t, j] * tie
            if groups == arms:
                low = _choose(values, picked, low, chosen)
            else:
                _groups(loop, values, sums)
                low = _choose(sums, picked, low, best)
                _members(loop, best, chosen)
            only, place = -1, 0
            if least:
                only = _fewest(taken[i * arms :], public[i, t], tie, chosen)
            for j in range(arms):
                if not chosen[j] or (least and only != j):
                    continue
                cell, drawn = i * arms + j, noise[i, t, place]
                n = taken[cell] + 1
                taken[cell] = n
                exact[cell] += outcomes[i, t, j]
                place += 1
                if kind < _TREE:
                    exact[cell] += drawn  # 0 without privacy
                    bounds[i, j] = min(exact[cell] / n + bonus[n], clip)
                    continue
                if kind == _TREE:
                    found = float(exact[cell] + _tree(n, drawn, held[cell]))
                elif kind == _DOUBLING:
                    if n & (n - 1):
                        continue
                    found = float(exact[cell] + held[cell, _zeros(n)])
                else:
                    if n - counts[cell] < block:
                        continue
                    size = n // block
                    items[cell, size - 1], exact[cell] = exact[cell], 0
                    own = held[cell, :size]
                    found = _factorised(items[cell, :size], own, column[-size:], inverse[-size:])
                value[cell], counts[cell] = found, n
                bounds[i, j] = min(found / n + bonus[n], clip)
            sent[i] += place
