r"""What can be audited, and how it is written.

    package.module:callable    path/file.py:callable    f(dataset), f(dataset, rng), or
                               f(dataset, n, rng) -> n outputs along the first axis (faster)
    discrete-laplace:scale=1   an exact noise of dpcore: dataset + noise
    half-scale                 a name of the catalogue (``dpcore audit catalogue``)
    protocol:pure,users=64,epsilon=1
                               rounds of a distributed protocol, see ``audit.protocol``
    bandit:dist-dp-se,epsilon=1
                               what the server sees of a bandit run, see ``audit.provided``
    bandit:dist-dp-se,epsilon=1,path=devices
                               the same, with a message of every user
    exec:./program args        any executable, see ``audit.program``

A target draws one block of runs at a time, in run order, with randomness of its own for each world
and block.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.guard import RAISED, Watchdog, failure
from audit.loading import load
from audit.outputs import Outputs, join, require_readable
from dpcore.errors import InvalidParameter, Unrepresentable
from dpcore.noise import Noise
from dpcore.rng import SYSTEM, Rng, SeededRng
from dpcore.spelling import LAWS, read_noise

if TYPE_CHECKING:
    from audit.catalogue import Subject

__all__ = [
    "Block",
    "Catalogued",
    "KnownLaw",
    "NoiseAdded",
    "Scalar",
    "Target",
    "Vectorised",
    "as_target",
    "read_target",
]

_ROOM: Final = 1 << 62
_FORMS: Final = "f(dataset), f(dataset, rng) or f(dataset, n, rng)"
_JSON: Final = frozenset({list, dict, str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    r"""Some consecutive runs: which world each is in (True for B), and their randomness.

    ``drawn`` runs came before; ``seeds`` are one a world, never used twice.
    """

    pair: tuple[Any, Any]
    worlds: NDArray[np.bool_]
    seeds: tuple[np.random.SeedSequence, np.random.SeedSequence]
    mixing: np.random.Generator
    watchdog: Watchdog
    drawn: int = 0

    @property
    def sizes(self) -> tuple[int, int]:
        r"""Runs in each world."""
        in_b = int(np.count_nonzero(self.worlds))
        return len(self.worlds) - in_b, in_b

    def fresh(self, world: int) -> Callable[[], Any]:
        r"""Makes the dataset of a world as it was given: a target may spoil the copy it gets."""
        dataset = self.pair[world]
        if not isinstance(dataset, list | dict):
            return lambda: dataset
        if _is_plain(dataset):
            # Ten times faster than deepcopy, where it gives the same back.
            with suppress(ValueError, RecursionError):
                text = json.dumps(dataset)
                if json.loads(text) == dataset:
                    return lambda: json.loads(text)
        return lambda: copy.deepcopy(dataset)


def _is_plain(dataset: object) -> bool:
    # Of nothing but what JSON gives back, type and all, and no list or dict in it twice.
    waiting: list[Any] = [dataset]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind not in _JSON:
            return False
        if kind is list or kind is dict:
            if id(item) in seen or (kind is dict and any(type(key) is not str for key in item)):
                return False
            seen.add(id(item))
            waiting += item if kind is list else item.values()
    return True


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(ABC):
    r"""Something that turns a dataset into a random output.

    ``seeded`` says whether the audit's seed reaches it, ``named`` that :func:`read_target` made it
    from its spelling and can do so again, in another process; ``folder`` is the one that the names
    of files in the spelling are relative to, wherever the target itself goes.
    """

    spelling: str
    seeded: bool = True
    named: bool = field(default=False, compare=False, repr=False)
    folder: str = field(default_factory=_working_folder, compare=False, repr=False)
    lines: ClassVar[bool] = False
    r"""Whether outputs are lines of text still to be read."""
    limits_itself: ClassVar[bool] = False
    r"""Whether its time limit holds in any thread."""

    def check(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        r"""The pair, where it can be known without a run that the target takes it."""
        return pair

    @abstractmethod
    def draw(self, block: Block) -> Iterator[Outputs]:
        r"""The outputs of a block in run order, in pieces; what was yielded is kept on a failure.

        Raises :class:`audit.errors.TargetFailed`.
        """


@runtime_checkable
class KnownLaw(Protocol):
    r"""A target whose outputs are a noise of known law, moved to where the dataset says."""

    @property
    def spelling(self) -> str:
        r"""As it was written."""

    @property
    def noise(self) -> Noise:
        r"""The law, of every coordinate."""

    @property
    def about(self) -> str:
        r"""What a proof is about beside the law itself, with a comma before it, or nothing."""

    def places(self, pair: tuple[Any, Any]) -> tuple[int | tuple[int, ...], ...]:
        r"""Where each dataset of the pair moves the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar(Target):
    r"""f(dataset), or f(dataset, rng) where it is seeded: one output a call."""

    function: Callable[..., Any]

    def draw(self, block: Block) -> Iterator[Outputs]:
        fresh = (block.fresh(0), block.fresh(1))
        options: list[dict[str, Any]] = [
            {"rng": np.random.default_rng(seed)} if self.seeded else {} for seed in block.seeds
        ]
        for i, world in enumerate(block.worlds.tolist()):
            dataset = fresh[world]()
            try:
                block.watchdog.restart()
                output = self.function(dataset, **options[world])
                require_readable(output)
                block.watchdog.stop()
            except RAISED as error:
                block.watchdog.stop()
                run = block.drawn + i + 1
                raise failure(self.spelling, error, dataset="AB"[world], run=run) from error
            yield [output]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorised(Target):
    r"""f(dataset, n, rng): n outputs along the first axis, in one call for each world."""

    function: Callable[..., Any]

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [self._side(block, world) if block.sizes[world] else None for world in (0, 1)]
        given = [side for side in sides if side is not None]
        side_a, side_b = (given[0][:0] if side is None else side for side in sides)
        yield join(side_a, side_b, block.worlds, block.mixing)

    def _side(self, block: Block, world: int) -> Outputs:
        rng = np.random.default_rng(block.seeds[world])
        dataset = block.fresh(world)()
        try:
            block.watchdog.restart()
            returned = self.function(dataset, n=block.sizes[world], rng=rng)
            if isinstance(returned, np.ma.MaskedArray):
                returned = returned.tolist()  # what is masked is None, and not what it hides
            if isinstance(returned, list | tuple) or _holds_objects(returned):
                for output in returned:
                    require_readable(output)
            block.watchdog.stop()
        except RAISED as error:
            block.watchdog.stop()
            raise failure(self.spelling, error, dataset="AB"[world]) from error
        return self._checked(returned, block.sizes[world], world)

    def _checked(self, returned: Any, runs: int, world: int) -> Outputs:
        outputs = list(returned) if isinstance(returned, tuple) else returned
        if outputs is None:
            reason = "returns nothing"
        elif not isinstance(outputs, np.ndarray | list):
            reason = f"returned {type(outputs).__name__} and not an array"
        elif isinstance(outputs, np.ndarray) and outputs.ndim == 0:
            reason = "returned a single value"
        elif len(outputs) != runs:
            reason = f"returned {len(outputs):,} output{'' if len(outputs) == 1 else 's'}"
        else:
            return outputs
        reason += f": f(dataset, n, rng) must return n = {runs:,} outputs along the first axis"
        raise TargetFailed(self.spelling, reason, dataset="AB"[world])


def _holds_objects(returned: Any) -> bool:
    return isinstance(returned, np.ndarray) and returned.ndim > 0 and returned.dtype.hasobject


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued(Vectorised):
    r"""An entry of the catalogue, which brings its own pair and claim."""

    subject: Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAdded(Target):
    r"""dataset + noise, for an integer dataset; drawn from the operating system unless seeded."""

    noise: Noise
    about: ClassVar[str] = ""

    def places(self, pair: tuple[Any, Any]) -> tuple[int, int]:
        r"""The pair itself."""
        return self.check(pair)

    def check(self, pair: tuple[Any, Any]) -> tuple[int, int]:
        r"""The pair as integers; refused otherwise."""
        for name, dataset in zip("AB", pair, strict=True):
            if isinstance(dataset, bool) or not isinstance(dataset, int):
                reason = f"must be an integer: {self.spelling} adds its noise to it"
                raise InvalidParameter(f"dataset {name}", dataset, reason)
        return pair[0], pair[1]

    def draw(self, block: Block) -> Iterator[Outputs]:
        pair = self.check(block.pair)
        sides = []
        for world in (0, 1):
            rng: Rng = SYSTEM
            if self.seeded:
                rng = SeededRng(_seed_of(block.seeds[world]))
            sides.append(self._side(pair[world], block.sizes[world], rng))
        if isinstance(sides[0], list) != isinstance(sides[1], list):
            # An integer is one, wherever it is too large for an array.
            sides = [list(map(int, side)) for side in sides]
        yield join(sides[0], sides[1], block.worlds, block.mixing)

    def _side(self, value: int, runs: int, rng: Rng) -> Outputs:
        try:
            drawn = self.noise.sample(runs, rng=rng)
        except Unrepresentable:
            return [value + self.noise.sample(rng=rng) for _ in range(runs)]
        if abs(value) < _ROOM:
            return drawn + value
        return [value + z for z in drawn.tolist()]


def _seed_of(seed: np.random.SeedSequence) -> int:
    return int.from_bytes(seed.generate_state(4).tobytes(), sys.byteorder)


def read_target(
    spelling: str, *, seeded: bool = True, found: Callable[[str], Target] | None = None
) -> Target:
    r"""The target that ``spelling`` names; see the module for what there is.

    ``seeded = False`` lets a built-in noise or protocol draw from the operating system, as in
    earnest. ``found`` finds a callable of a file or module, in place of importing it here.

    >>> read_target("discrete-laplace:scale=10").spelling
    'discrete-laplace:scale=10'

    Raises :class:`InvalidParameter` for what is not there, and
    :class:`audit.errors.TargetFailed` for a file or module that fails while it is imported.
    """
    folder = _working_folder()  # before the import of a file could change it
    target = _read(spelling, seeded=seeded, found=found or _loaded)
    return replace(target, named=True, folder=folder)


def _loaded(spelling: str) -> Target:
    return as_target(spelling, load(spelling))


def _read(spelling: str, *, seeded: bool, found: Callable[[str], Target]) -> Target:
    name, colon, rest = spelling.partition(":")
    if name == "exec" and colon:
        from audit.program import read_program

        return read_program(spelling, rest)
    if name == "protocol" and colon:
        from audit.protocol import read_protocol

        return read_protocol(spelling, rest, seeded=seeded)
    if name in LAWS:
        return NoiseAdded(spelling=spelling, noise=read_noise(spelling), seeded=seeded)
    if not colon:
        return _catalogued(spelling)
    if not name.endswith(".py"):
        from audit.provided import provided

        target = provided(spelling, name, rest, seeded=seeded)
        if target is not None:
            return target
    return found(spelling)


def _catalogued(spelling: str) -> Target:
    from audit.catalogue import ENTRIES

    known = {s.name: s for entry in ENTRIES for s in (entry.twin, entry)}
    if spelling in known:
        subject = known[spelling]
        return Catalogued(spelling=spelling, function=subject.run, subject=subject)
    close = difflib.get_close_matches(spelling, [*known, *LAWS], n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InvalidParameter(
        "target",
        spelling,
        f"{hint}a target is written module:callable, file.py:callable, exec:./program, "
        "a noise such as discrete-laplace:scale=1, a protocol:..., or a name of "
        "dpcore audit catalogue",
    )


def as_target(spelling: str, found: Any) -> Target:
    r"""A callable in one of the forms f(dataset), f(dataset, rng) or f(dataset, n, rng).

    Raises :class:`InvalidParameter` for anything else.
    """
    if not callable(found):
        raise InvalidParameter("target", spelling, f"is a {type(found).__name__}, not a callable")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # native code may not say how it is called
        return Scalar(spelling=spelling, function=found, seeded=False)
    names = signature.parameters
    try:
        if {"n", "rng"} <= names.keys():
            signature.bind(None, n=1, rng=None)
            return Vectorised(spelling=spelling, function=found)
        seeded = "rng" in names
        signature.bind(None, **({"rng": None} if seeded else {}))
    except TypeError as error:
        reason = f"must be callable as {_FORMS}: {error}"
        raise InvalidParameter("target", spelling, reason) from None
    return Scalar(spelling=spelling, function=found, seeded=seeded)
