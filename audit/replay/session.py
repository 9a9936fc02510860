r"""A tape while it is played: who reads it, and the generator of numpy that does.

One session at a time is open in a process; ``audit.replay.doors`` opens it. Only its own thread
reads the tape, and only during :meth:`Session.play`.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Final

import numpy as np

from audit.replay.tape import TOP, Seeded, Stream, Tape
from dpcore.sampling.rng import SeededRng, Words

_GIVEN: Final = "rng"

# The originals, from before anything is patched; numpy's stubs do not export the two functions.
_PCG64: Final = np.random.PCG64
_GENERATOR: Final = np.random.Generator
_get_bits: Final[Callable[[], Any]] = np.random.mtrand.get_bit_generator
_set_bits: Final[Callable[[Any], None]] = np.random.mtrand.set_bit_generator
_MODULE: Final = random.seed.__self__  # type: ignore[attr-defined]  # a bound method


class _Interface(ctypes.Structure):
    # bitgen_t of numpy/random/bitgen.h, which numpy documents for generators of other makers.
    _fields_: ClassVar = [
        ("state", ctypes.c_void_p),
        ("next_uint64", ctypes.c_void_p),
        ("next_uint32", ctypes.c_void_p),
        ("next_double", ctypes.c_void_p),
        ("next_raw", ctypes.c_void_p),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_NEXT_64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_NEXT_32 = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_NEXT_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)


class TapeBits(np.random.BitGenerator):
    r"""A bit generator of numpy that reads a source of the tape: one real a word, half or double.

    Where no tape is played to its thread it deals from a PCG64 that the operating system seeded.
    """

    def __init__(self, seed: Any = 0, *, stream: Stream | None = None) -> None:
        super().__init__(seed)
        tape = playing()
        if stream is None:  # a child that numpy spawned
            stream = Stream("numpy Generator, spawned" if tape is None else tape.source("spawned"))
        self._stream = stream
        self._outside: np.random.PCG64 | None = None
        interface = _Interface.from_address(_pointer_of(self.capsule, b"BitGenerator"))
        self._kept = (
            _NEXT_64(lambda _: self._word()),
            _NEXT_32(lambda _: self._word() >> 32),
            _NEXT_DOUBLE(lambda _: min(self._word() >> 11, TOP) * 2.0**-53),
        )
        words, halves, doubles = (ctypes.cast(f, ctypes.c_void_p).value for f in self._kept)
        interface.state = None
        interface.next_uint64 = interface.next_raw = words
        interface.next_uint32, interface.next_double = halves, doubles

    def _word(self) -> int:
        # Native code called this, and an error cannot pass through it: it is raised afterwards.
        try:
            tape = playing()
            if tape is not None:
                return tape.bits(self._stream, 64)
        except BaseException as error:  # noqa: BLE001 - kept, and raised by Session.play
            if _session is not None:
                _session.interrupted = error
        if self._outside is None:
            session = current()
            with nullcontext() if session is None else session.paused():
                self._outside = _PCG64()
        return int(self._outside.random_raw())


class TapedStream:
    r"""Stands in for the keystream of a SeededRng, which goes on where no tape is played."""

    def __init__(self, stream: Stream, behind: Any) -> None:
        self.stream, self.behind = stream, behind

    def bits(self, count: int) -> int:
        tape = playing()
        dealt: int = self.behind.bits(count) if tape is None else tape.bits(self.stream, count)
        return dealt

    def take(self, count: int) -> Words:
        tape = playing()
        dealt: Words = self.behind.take(count) if tape is None else tape.words(self.stream, count)
        return dealt


class Session:
    r"""The doors while they are open: :meth:`play` runs a call on a tape.

    ``constants`` are the seeds known to be constants of the program. While ``learning``, every
    seeded generator deals what it deals, so that it can be seen which seeds come back.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.tape: Tape | None = None
        self.constants: frozenset[Seeded] = frozenset()
        self.learning = False
        self.interrupted: BaseException | None = None
        # The state of the generator behind the functions of `random`, once the target moves it.
        self.moved: Any = None
        # Random instances of this run, and what they read (None: what they deal themselves).
        self.instances: dict[int, tuple[random.Random, Stream | None]] = {}
        self._copies: dict[Seeded, tuple[str, int]] = {}
        self._global = TapeBits(stream=Stream("numpy.random"))

    def given(self) -> np.random.Generator:
        r"""The generator that an audit hands to a target."""
        return _GENERATOR(TapeBits(stream=Stream(_GIVEN)))

    def given_ours(self) -> SeededRng:
        r"""The same, for a target that asks for an ``Rng`` of dpcore."""
        with self.paused():  # its seed is nobody's choice
            rng = SeededRng(0)
        rng._stream = TapedStream(Stream(_GIVEN), rng._stream)  # type: ignore[assignment]  # it deals as a keystream does
        return rng

    def play(self, tape: Tape, call: Callable[[], Any]) -> Any:
        r"""What ``call()`` returns or raises, every draw of this thread read from ``tape``."""
        before = _get_bits()
        self.moved = None
        self.instances.clear()
        self._copies.clear()
        self.interrupted = None
        try:
            _set_bits(self._global)
            # No half of a pair of gauss() is left from before.
            half, _MODULE.gauss_next = _MODULE.gauss_next, None
            self.tape = tape
            returned = call()
        finally:
            self.tape = None
            _set_bits(before)
            # Only what the target itself moved is moved back: other threads draw on.
            if self.moved is not None:
                random.setstate(self.moved)
            _MODULE.gauss_next = half
        if self.interrupted is not None:
            raise self.interrupted
        return returned

    @contextmanager
    def paused(self) -> Iterator[None]:
        r"""Nothing reads the tape inside: what numpy draws and drops while it makes a generator."""
        tape, self.tape = self.tape, None
        try:
            yield
        finally:
            self.tape = tape

    def seeded(self, kind: str, seed: Any) -> Stream | None:
        r"""What a generator started from ``seed`` reads; None where it deals what it deals."""
        tape = self.tape
        if tape is None:
            return None
        found = Seeded(kind, _frozen(seed))
        tape.seeds.append(found)
        if self.learning or found in self.constants:
            return None
        # Equal seeds give equal draws.
        source, copies = self._copies.get(found, ("", 0))
        source = source or tape.source(f"{kind}, seeded")
        self._copies[found] = (source, copies + 1)
        return Stream(source, copies)

    def fresh(self, kind: str) -> Stream:
        r"""What a generator started without a seed reads."""
        tape = self.tape
        if tape is None:
            return Stream(kind)
        tape.met.add(kind)
        return Stream(tape.source(kind))


_session: Session | None = None


def install(session: Session | None) -> None:
    r"""Make a session the open one, or close it."""
    global _session  # noqa: PLW0603 - one process has one set of doors
    _session = session


def current() -> Session | None:
    r"""The open session while it plays a tape to this thread."""
    return None if playing() is None else _session


def playing() -> Tape | None:
    r"""The tape that this thread is to read.

    >>> playing() is None
    True
    """
    session = _session
    if session is None or session.thread != threading.get_ident():
        return None
    return session.tape


def _frozen(seed: Any) -> Any:
    # A seed as something that can be compared.
    if isinstance(seed, np.random.SeedSequence):
        return ("SeedSequence", _frozen(seed.entropy), tuple(seed.spawn_key))
    if isinstance(seed, np.ndarray | np.generic):
        return _frozen(seed.tolist())
    if isinstance(seed, list | tuple):
        return tuple(_frozen(part) for part in seed)
    return seed if isinstance(seed, int | float | str | bytes) else repr(seed)
