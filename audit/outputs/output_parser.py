r"""Parse outputs, put them in run order, and warn about unusual outputs.

An :class:`OutputParser` decides whether the lines printed by a program are JSON or text, and
whether the values of outputs or only their types are compared. It is learned from the first block
of runs (at least :data:`audit.claims.TRAINING` runs). This block is never tested, so the parser is
fixed before the tested runs (``docs/proofs/audit_tests.md``).
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audit.errors import Unreadable
from audit.formats.shorten import shortened
from audit.outputs.identity import (
    TEXTS,
    StandIn,
    attributes_of,
    display_name,
    fields_of,
    identity,
    table_of,
    unread_attributes,
    without_address,
    written,
)
from audit.outputs.tables import columns_of, is_arrow, is_lazy, is_missing, is_table
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.parameter import integer

UNREAD: Final = "parts without plain data were not measured"
r"""The beginning of a warning about outputs that were read only in part."""

Outputs: TypeAlias = NDArray[Any] | list[Any]

_DEEPEST: Final = 50
_MOST_GROUPS: Final = 1000
_EXAMPLES: Final = 8
_RARE: Final = 10**9  # if runs are independent, the probability of a warning is at most 1/_RARE
_MOST_BITS: Final = 14_000  # above this, integers have more digits than Python prints
_KINDS: Final[dict[type, str]] = {int: "int", float: "float", bool: "bool", str: "str"}
_NUMBERS: Final = {np.dtype(code).type for code in f"?{np.typecodes['AllInteger']}efdFD"}
_SCALARS: Final = frozenset({float, bool, str, bytes, complex, type(None), *_NUMBERS})
_FLAT: Final = _SCALARS | {int}  # without elements
_HARMLESS: Final = _SCALARS | {list, tuple, dict, set, frozenset}


def kind(output: object) -> str:
    r"""Describe the type of an output, with its shape if it has one."""
    plain = _KINDS.get(type(output))
    if plain is not None:
        return plain
    match output:
        case None:
            return "None"
        case np.ndarray():
            shape = f" of shape {output.shape}" if output.ndim else ""
            return f"{_dtype_name(output.dtype)} {type(output).__name__.removeprefix('nd')}{shape}"
        case np.generic():
            return _dtype_name(output.dtype)
        case list() | tuple():
            return f"{type(output).__name__} of {len(output)}"
        case _ if is_table(type(output)):
            return f"{type(output).__name__} of shape {getattr(output, 'shape', None)}"
        case _:
            return type(output).__name__


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "VT":  # the name lacks the names and types of fields
        return str(dtype)
    return TEXTS.get(dtype.kind, dtype.name if dtype.isnative else dtype.str)


def require_readable(output: object) -> None:
    r"""Raise :class:`audit.errors.Unreadable` if an output cannot be compared with others."""
    if type(output) in _SCALARS:
        return
    if type(output) is int:
        _require_code(output)
        return
    for depth, level in enumerate(_levels(output)):
        if depth == _DEEPEST:
            raise Unreadable(f"returned a {type(output).__name__} nested deeper than {_DEEPEST}")
        for item in level:
            if type(item) not in _HARMLESS:
                _require_code(item)
                if type(item) is not int:
                    require_no_iterator(item, output)


def _require_code(item: object) -> None:
    # Try the methods of an object that are used to distinguish outputs.
    if isinstance(item, int) and item.bit_length() > _MOST_BITS:
        raise Unreadable(f"returned an integer of more than {_MOST_BITS:,} bits")
    if type(item) is int or isinstance(item, np.ndarray | np.generic) or is_table(type(item)):
        return
    if is_missing(item):
        return
    name, tried = type(item).__name__, "hash"
    if is_lazy(type(item)):
        raise Unreadable(f"returned a {name}, which contains its source data: return its collect()")
    try:
        if _has_hash(item):
            tried = "=="
            bool(item == item)  # noqa: PLR0124  # whether == works at all
        tried = "repr"
        repr(item)
    except Exception as error:
        raised = type(error).__name__
        raise Unreadable(f"returned a {name} whose {tried} raises {raised}") from error


def require_no_iterator(item: object, output: object) -> None:
    r"""Raise :class:`Unreadable` if an element of an output is an iterator or coroutine."""
    if not isinstance(item, Iterator | AsyncIterator | Coroutine):
        return
    such = "its list()"
    if isinstance(item, AsyncIterator | Coroutine):
        such = "the result of asyncio.run()"
    if isinstance(item, Coroutine):
        item.close()
    name = type(item).__name__
    found = name if item is output else f"{type(output).__name__} that contains a {name}"
    raise Unreadable(f"returned a {found}: return plain values instead, such as {such}")


def _has_hash(item: object) -> bool:
    # Objects without a hash are distinguished by their elements or their repr.
    try:
        hash(item)
    except TypeError:
        return False
    return True


def _levels(output: object) -> Iterator[list[object]]:
    # The output, its elements, their elements, ..., up to _DEEPEST times.
    level: list[object] = [output]
    for _ in range(_DEEPEST + 1):
        if not level:
            return
        yield level
        within = (item for item in level if type(item) not in _FLAT)
        level = [inner for item in within for inner in _elements(item)]


def _elements(output: object) -> Iterable[object]:
    match output:
        case dict():
            return chain(output.keys(), output.values())
        case list() | tuple() | set() | frozenset():
            return output
        case np.ndarray() if output.dtype.hasobject:
            return cast("list[object]", np.ma.getdata(output).ravel().tolist())
        case _ if dataclasses.is_dataclass(output) or isinstance(output, StandIn):
            return (item for _, item in fields_of(output) or ())
        case _ if is_table(type(output)) and not is_arrow(type(output)):
            objects = (c for c in columns_of(output) if str(c.dtype).lower() == "object")
            return chain.from_iterable(map(list, objects))
        case _:
            return ()


def _kinds(outputs: Outputs) -> Iterable[str]:
    if isinstance(outputs, np.ndarray):
        kind_name = kind(outputs[0]) if len(outputs) else ""
        return (kind_name for _ in outputs)
    return map(kind, outputs)


def join(
    side_a: Outputs, side_b: Outputs, worlds: NDArray[np.bool_], rng: np.random.Generator
) -> Outputs:
    r"""Put the outputs of the two datasets in run order, after shuffling those of each dataset.

    ``worlds`` contains the dataset of each run. Types and shapes may differ between the datasets.
    """
    if _stackable(side_a, side_b):
        return interleave(side_a, side_b, worlds, rng)
    rows = [[side[i] for i in rng.permutation(len(side))] for side in (side_a, side_b)]
    sides = [iter(row) for row in rows]
    return [next(sides[world]) for world in worlds.astype(int)]


def _stackable(*sides: Outputs) -> bool:
    arrays = [side for side in sides if isinstance(side, np.ndarray)]
    if len(arrays) < len(sides):
        return False
    return len({(_dtype_name(side.dtype), side.shape[1:]) for side in arrays}) == 1


def concatenate(pieces: Sequence[Outputs]) -> Outputs:
    r"""Concatenate blocks of outputs into an array if they are compatible arrays, else a list."""
    if not pieces:
        return []
    if _stackable(*pieces):
        found = _adjoining(cast("Sequence[NDArray[Any]]", pieces))
        return np.concatenate(pieces) if found is None else found
    return list(chain.from_iterable(pieces))


def _adjoining(pieces: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    # The pieces as one view, if they are adjacent slices of one array; otherwise None.
    first, base = pieces[0], pieces[0].base
    if not isinstance(base, np.ndarray) or not base.flags.c_contiguous or not first.size:
        return None
    if base.dtype != first.dtype or base.shape[1:] != first.shape[1:]:
        return None
    begin = end = first.ctypes.data
    for piece in pieces:
        if piece.base is not base or piece.ctypes.data != end or not piece.flags.c_contiguous:
            return None
        end += piece.nbytes
    size = first[:1].nbytes
    found: NDArray[Any] = base[(begin - base.ctypes.data) // size :][: (end - begin) // size]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputParser:
    r"""Converts the raw outputs of an audit to the values that are tested.

    If ``lines`` is true, each output is a line of text. If ``as_json`` is also true, which means
    that all lines of the training runs were JSON, a line that is a JSON number is compared as this
    number, as written. Any other line is compared as text. If ``by_kind`` is true, only the type of
    each output is compared (:func:`kind`). ``by_kind`` is true if the two datasets had no type in
    common in the training runs, because values could hide what the types reveal.
    """

    lines: bool
    as_json: bool
    by_kind: bool

    @classmethod
    def learn(cls, outputs: Outputs, worlds: NDArray[np.bool_], *, lines: bool) -> OutputParser:
        as_json = lines and all(_value(line) is not line for line in outputs)
        plain = cls(lines=lines, as_json=as_json, by_kind=False)
        found = list(_kinds(plain.values(outputs)))
        sides = [{found[i] for i in np.flatnonzero(worlds == world)} for world in (False, True)]
        apart = bool(sides[0]) and bool(sides[1]) and not sides[0] & sides[1]
        return cls(lines=lines, as_json=as_json, by_kind=apart)

    def apply(self, outputs: Outputs) -> Outputs:
        r"""Convert each output separately to the value that is tested."""
        if self.by_kind:
            return list(_kinds(self.values(outputs)))
        return [written(line) for line in outputs] if self.as_json else outputs

    def values(self, outputs: Outputs) -> Outputs:
        r"""The outputs to which features are applied: parsed values instead of JSON lines."""
        return [_value(line) for line in outputs] if self.as_json else outputs


def _value(line: str) -> object:
    # The line itself if it is not JSON, or is JSON nested too deeply to be compared.
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return line if sum(1 for _ in _levels(value)) > _DEEPEST else value


def same(one: Outputs, other: Outputs) -> bool:
    r"""Whether two lists of outputs are exactly equal, where nan equals nan."""
    return len(one) == len(other) and list(map(identity, one)) == list(map(identity, other))


def oddities(outputs: Outputs, worlds: NDArray[np.bool_], form: OutputParser) -> list[str]:
    r"""Warnings about unusual outputs, such as nan, constants, or types of only one dataset."""
    values = form.values(outputs)
    return [
        *_nan_found(values, worlds),
        *_kinds_found(values, worlds, form),
        *_constant(form.apply(outputs)),
        *_all_different(values),
        *_unread(values),
        *_dependent(outputs, worlds),
    ]


def _nan_found(outputs: Outputs, worlds: NDArray[np.bool_]) -> list[str]:
    if isinstance(outputs, np.ndarray):
        if outputs.dtype.kind != "f":
            return []
        nan = np.asarray(np.isnan(outputs.reshape(len(outputs), -1)).any(axis=1), dtype=np.bool_)
    else:
        nan = np.fromiter((_is_nan(output) for output in outputs), np.bool_, len(outputs))
    total, in_b = int(nan.sum()), int((nan & worlds).sum())
    if not total:
        return []
    found = f"{total:,} of {len(nan):,} outputs are nan"
    return [f"{found} ({total - in_b:,} on dataset A, {in_b:,} on dataset B): counted as a value"]


def _is_nan(output: object) -> bool:
    if isinstance(output, list | tuple):
        return any(_is_nan(item) for item in output)
    return isinstance(output, float | np.floating) and math.isnan(output)


def _kinds_found(outputs: Outputs, worlds: NDArray[np.bool_], form: OutputParser) -> list[str]:
    if isinstance(outputs, np.ndarray):
        return []
    plain = {type(output) for output in outputs}
    if len(plain) == 1 and plain <= _KINDS.keys():
        return []
    kinds = list(_kinds(outputs))
    sides = [Counter(kinds[i] for i in np.flatnonzero(worlds == world)) for world in (False, True)]
    if form.by_kind:
        listed = [" or ".join(sorted(side)) or "nothing" for side in sides]
        found = f"dataset A gave {listed[0]}, dataset B {listed[1]}"
        return [f"{found}: the type alone distinguishes the datasets, so only the type was tested"]
    return [
        f"only dataset {'AB'[world]} gave {name} ({count:,} of {sides[world].total():,} runs)"
        for world in (0, 1)
        for name, count in sorted(sides[world].items())
        if name not in sides[1 - world] and sides[1 - world]
    ][:4]


def _constant(outputs: Outputs) -> list[str]:
    if len(outputs) < 2:
        return []
    first = identity(outputs[0])
    if any(identity(output) != first for output in outputs):
        return []
    printed = shortened(" ".join(display_name(first).split()))
    return [f"every output was {printed}, on both datasets"]


def _all_different(outputs: Outputs) -> list[str]:
    # Warn if every output is a new object that is equal only to itself.
    if isinstance(outputs, np.ndarray):
        return []
    own: Any = object.__eq__
    found = [item for item in outputs if item is not None and type(item).__eq__ is own]
    if len(found) < 2 or len(set(map(id, found))) < len(found):
        return []
    if any(fields_of(item) is not None or table_of(item) is not None for item in found):
        return []
    if any(attributes_of(item) or without_address(repr(item)) == repr(item) for item in found):
        return []
    names = " or ".join(sorted({type(item).__name__ for item in found}))
    return [f"no two outputs of type {names} are equal: return plain values"]


def _unread(outputs: Outputs) -> list[str]:
    # Only the first objects of each class are examined.
    if isinstance(outputs, np.ndarray):
        return []
    found: dict[str, None] = {}
    seen: Counter[type] = Counter()
    for output in outputs:
        if type(output) in _FLAT:
            continue
        for item in chain.from_iterable(_levels(output)):
            kind: type = type(item)
            if kind not in _HARMLESS and kind is not int and seen[kind] < _EXAMPLES:
                seen[kind] += 1
                found |= dict.fromkeys(unread_attributes(item))
    return [f"{UNREAD}: {', '.join([*found][:4])}"] if found else []


def _dependent(outputs: Outputs, worlds: NDArray[np.bool_]) -> list[str]:
    # If the runs are independent, adjacent outputs are equal as often as outputs half an audit
    # apart. Each run is in at most one comparison, so the two counts are independent binomials with
    # the same probability, and Fisher's exact test applies, with half of the level per dataset.
    for world in (False, True):
        places = np.flatnonzero(worlds == world)
        groups = min(len(places) // 4, _MOST_GROUPS)
        if not groups:
            continue
        starts = np.arange(groups) * len(places) // groups
        one, two, three, four = (
            [identity(outputs[place]) for place in places[starts + i].tolist()] for i in range(4)
        )
        half = groups // 2
        near = sum(map(operator.eq, one, two))
        far = sum(map(operator.eq, three, four[half:] + four[:half]))
        equal, all_ways = near + far, math.comb(2 * groups, near + far)
        ways = (math.comb(groups, k) * math.comb(groups, equal - k) for k in range(near, equal + 1))
        if near > far and 2 * _RARE * sum(ways) <= all_ways:
            counts = f"on dataset {'AB'[world]} {near:,} of {groups:,} outputs equal the next one"
            counts += (
                f", {far:,} equal the output half an audit away (is the noise seeded from the "
                "clock, or reused?)"
            )
            return [f"the runs are not independent, as the test assumes: {counts}"]
    return []


def draw_worlds(runs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    r"""Draw the dataset of each run independently and uniformly at random (True for dataset B).

    First the number of runs on A is drawn from Bin(runs, 1/2), and then the order of the runs.
    """
    count = integer("runs", runs, at_least=0)
    worlds = np.arange(count) >= rng.binomial(count, 0.5)
    return rng.permutation(worlds)


def interleave(
    world_a: ArrayLike, world_b: ArrayLike, worlds: NDArray[np.bool_], rng: np.random.Generator
) -> NDArray[np.generic]:
    r"""Merge the outputs of the two datasets in run order, after shuffling those of each."""
    side_a, side_b = np.asarray(world_a), np.asarray(world_b)
    in_b = int(np.count_nonzero(worlds))
    for name, side, runs in (("world_a", side_a, len(worlds) - in_b), ("world_b", side_b, in_b)):
        if len(side) != runs:
            reason = f"must contain {runs} outputs, one per run, but contains {len(side)}"
            raise InvalidParameter(name, ABSENT, reason)
    if side_a.shape[1:] != side_b.shape[1:] and len(side_a) and len(side_b):
        shapes = f"{side_a.shape[1:]}, like world_a, but their shape is {side_b.shape[1:]}"
        raise InvalidParameter("world_b", ABSENT, f"must contain outputs of shape {shapes}")
    shape = (side_a if len(side_a) else side_b).shape[1:]
    joined = np.empty((len(worlds), *shape), dtype=np.result_type(side_a, side_b))
    joined[~worlds] = rng.permutation(side_a)
    joined[worlds] = rng.permutation(side_b)
    return joined
