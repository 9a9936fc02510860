r"""A random tape: predetermined draws for every source of randomness, and the result of a run.

For each source (``SystemRng``, ``random``, ...) a tape holds a sequence U_0, U_1, ... of
independent uniform reals in [0, 1). A request for w bits from a source reads the first w bits of
the next real of this source. So a tape is the same for two datasets even if they request different
numbers of draws, or draws of different widths. Every finite sequence of bits has positive
probability.

Each real may be set to one of :data:`EXTREMES`; the changed tape still has positive probability.
Requests are logged. ``audit.replay.rng_hooks`` makes the sources read a tape.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from audit.errors import TargetFailed
from audit.outputs.rows import Cell
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import Words

EXTREMES: Final[dict[str, tuple[int, int]]] = {
    "lowest": (0, 0x00),
    "highest": ((1 << 64) - 1, 0xFF),
    "middle": (1 << 63, 0x00),
    "low": (1 << 34, 0x00),
    "high": ((1 << 64) - (1 << 34), 0x00),
}
r"""The extreme values of a real, each given by its first 64 bits and by every later byte.

They are 0, the largest real below 1, 1/2, 2^-30 and 1 - 2^-30. The last two reach branches such as
0 < u < p, which exclude 0 or 1.
"""

TOP: Final = (1 << 53) - (1 << 13)
r"""The largest double that a tape returns, 1 - 2^-40, in units of 2^-53.

An inversion sampler adds probabilities until their sum exceeds a double U. For U = 1 - 2^-53 it may
never end, because the rounded sum never exceeds U, as in numpy's geometric(1 - exp(-1/2)).
"""

Place: TypeAlias = tuple[str, int]
r"""The place of a real on a tape: the source, and the index within the source."""

Changes: TypeAlias = Mapping[Place, str | int]
r"""The changed reals by place: each is the name of an extreme, or the first 64 bits."""

_MOST_LOGGED: Final = 1 << 17
_CHUNK: Final = 256

# The originals, from before anything is patched.
_PCG64: Final = np.random.PCG64
_SEQUENCE: Final = np.random.SeedSequence


class Draw(NamedTuple):
    r"""A request for the first ``width`` bits of ``reals`` consecutive reals of a source."""

    source: str
    first: int
    reals: int
    width: int


class Seeded(NamedTuple):
    r"""A seeded generator that the program created, described by its kind and its seed."""

    kind: str
    seed: Hashable


@dataclass(frozen=True, slots=True)
class Stream:
    r"""A reader of the reals of ``source``; readers that differ in ``copy`` read the same reals."""

    source: str
    copy: int = 0


class Tape:
    r"""The random tape for ``seed`` after ``changes``; ``cut`` means that ``log`` is incomplete."""

    def __init__(self, seed: int, changes: Changes | None = None) -> None:
        self.seed = integer("seed", seed, at_least=0)
        self.changes = dict(changes or {})
        self.log: list[Draw] = []
        self.seeds: list[Seeded] = []
        self.met: set[str] = set()
        self.declared: list[Any] = []
        self.cut = False
        self._tails: dict[Place, int] = {}
        self._heads: dict[str, dict[int, int]] = {}
        for (source, index), value in self.changes.items():
            head, tail = EXTREMES.get(str(value), (value, 0x00))
            if not isinstance(head, int) or not 0 <= head < 1 << 64:
                raise InvalidParameter(
                    "changes", value, f"must be in [0, 2^64), or one of {', '.join(EXTREMES)}"
                )
            self._heads.setdefault(source, {})[index] = head
            self._tails[source, index] = tail
        self._dealt: dict[str, Words] = {}
        self._makers: dict[str, np.random.PCG64] = {}
        self._positions: Counter[Stream] = Counter()
        self._named: Counter[str] = Counter()

    def bits(self, stream: Stream, width: int) -> int:
        r"""The first ``width`` bits of the next real of ``stream``, as an integer."""
        index = self._take(stream, 1, width)
        head = int(self._reals(stream.source, index, 1)[0])
        if width <= 64:
            return head >> (64 - width)
        more = width - 64
        tail = int.from_bytes(self._tail(stream.source, index, (more + 7) // 8), "big")
        return (head << more) | (tail >> (-more % 8))

    def double(self, stream: Stream) -> float:
        r"""The next real of ``stream`` as a double: its first 53 bits, but at most :data:`TOP`."""
        return min(self.bits(stream, 53), TOP) * 2.0**-53

    def words(self, stream: Stream, count: int) -> Words:
        r"""The first 64 bits of each of the next ``count`` reals of ``stream``, as a new array."""
        index = self._take(stream, count, 64)
        return self._reals(stream.source, index, count).copy()

    def source(self, kind: str) -> str:
        r"""Return a new name for a source of this kind; names are numbered in order of creation."""
        self._named[kind] += 1
        return f"{kind} {self._named[kind]}"

    @property
    def draws(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for stream, position in self._positions.items():
            found[stream.source] += position
        return found

    def places(self) -> list[Place]:
        r"""The places of all reals that were read, in order and without repetition."""
        seen = ((a.source, i) for a in self.log for i in range(a.first, a.first + a.reals))
        return [*dict.fromkeys(seen)]

    def head(self, place: Place) -> int:
        return int(self._reals(place[0], place[1], 1)[0])

    def _take(self, stream: Stream, count: int, width: int) -> int:
        index = self._positions[stream]
        if not count:
            return index
        self._positions[stream] = index + count
        last = self.log[-1] if self.log else None
        after = None if last is None else (last.source, last.first + last.reals, last.width)
        if last is not None and after == (stream.source, index, width):
            # Merge consecutive requests: a request for two words equals two requests for a word.
            self.log[-1] = last._replace(reals=last.reals + count)
        elif len(self.log) < _MOST_LOGGED:
            self.log.append(Draw(stream.source, index, count, width))
        else:
            self.cut = True
        return index

    def _reals(self, source: str, first: int, count: int) -> Words:
        dealt = self._dealt.get(source)
        if dealt is None:
            dealt = self._dealt[source] = self._changed(source, 0, _first_reals(self.seed, source))
        have = len(dealt)
        if have < first + count:
            maker = self._makers.get(source)
            if maker is None:
                maker = self._makers[source] = _maker(self.seed, source).advance(have)
            more = self._changed(source, have, maker.random_raw(max(first + count - have, have)))
            dealt = self._dealt[source] = np.concatenate([dealt, more])
        return dealt[first : first + count]

    def _changed(self, source: str, start: int, reals: Words) -> Words:
        # The given reals, of which the first has index ``start``, after the changes of this tape.
        heads = self._heads.get(source)
        if heads:
            reals = reals.copy()
            for index, head in heads.items():
                if start <= index < start + len(reals):
                    reals[index - start] = head
        return reals

    def _tail(self, source: str, index: int, count: int) -> bytes:
        fill = self._tails.get((source, index))
        if fill is not None:
            return bytes([fill]) * count
        return hashlib.shake_256(f"{self.seed} {index} {source}".encode()).digest(count)


@lru_cache(maxsize=4096)
def _first_reals(seed: int, source: str) -> Words:
    # Cached, because a replay reads the same tape with many changes.
    found = _maker(seed, source).random_raw(_CHUNK)
    found.flags.writeable = False
    return found


def _maker(seed: int, source: str) -> np.random.PCG64:
    digest = hashlib.sha256(source.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]
    return _PCG64(_SEQUENCE([seed, *words]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    r"""The result of a run on one dataset and one tape: an output, or an error.

    ``key`` is equal for outputs that a recipient cannot distinguish; the key of an error is its
    type and text. ``kind`` is the type and shape of the output. ``structure`` is everything in the
    output but its values. ``parts`` are the values by path (``audit.outputs.rows``); if there are
    more than 64, only the labels are kept.
    """

    output: Any
    key: Hashable
    kind: str
    tape: Tape
    error: TargetFailed | None = None
    structure: str = ""
    parts: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def flow(self) -> tuple[Draw, ...]:
        r"""The sequence of requests to the tape, which shows the control flow of the run."""
        return tuple(self.tape.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRuns:
    r"""The runs of both datasets on one tape."""

    a: Execution
    b: Execution

    @property
    def failed(self) -> bool:
        return self.a.error is not None or self.b.error is not None

    @property
    def complete(self) -> bool:
        r"""Whether both runs returned an output, and all of their draws were logged."""
        return not (self.failed or self.a.tape.cut or self.b.tape.cut)

    def witness(self, **more: Any) -> dict[str, Any]:
        r"""The tape and both outputs, as evidence from which the runs can be repeated."""
        changed = {f"{s}[{i}]": value for (s, i), value in self.a.tape.changes.items()}
        where: dict[str, Any] = {"tape": self.a.tape.seed, "changed": changed}
        return {**where, "a": self.a.output, "b": self.b.output, **more}
