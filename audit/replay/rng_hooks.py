r"""RNG hooks: during a replay, random number generators read their draws from a tape.

A process has at most one active :class:`Session`. Only the thread that created the session reads
the tape, and only during :meth:`Session.play`.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Final

import numpy as np

import dpcore.noise
from audit.replay.tape import TOP, Seeded, Stream, Tape
from dpcore.sampling.rng import SeededRng, SystemRng, Words

_GIVEN: Final = "rng"

# The originals, from before anything is patched; numpy's stubs do not export the two functions.
_PCG64: Final = np.random.PCG64
_GENERATOR: Final = np.random.Generator
_get_bits: Final[Callable[[], Any]] = np.random.mtrand.get_bit_generator
_set_bits: Final[Callable[[Any], None]] = np.random.mtrand.set_bit_generator
_MODULE: Final = random.seed.__self__  # type: ignore[attr-defined]  # a bound method


class _Interface(ctypes.Structure):
    # bitgen_t of numpy/random/bitgen.h, which numpy documents for third-party generators.
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
    r"""A numpy bit generator that draws from one source on the tape (:mod:`audit.replay.tape`).

    Each 64-bit word, 32-bit word or double is made from one real of the source. If no tape is
    played in this thread, the generator draws from a PCG64 seeded by the operating system.
    """

    def __init__(self, seed: Any = 0, *, stream: Stream | None = None) -> None:
        super().__init__(seed)
        tape = playing()
        if stream is None:  # numpy spawned a child
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
        # Native code calls this method and cannot propagate errors; they are raised afterwards.
        try:
            tape = playing()
            if tape is not None:
                return tape.bits(self._stream, 64)
        except BaseException as error:  # noqa: BLE001 - stored, and raised by Session.play
            if _session is not None:
                _session.interrupted = error
        if self._outside is None:
            self._outside = _as_it_is(_PCG64)
        return int(self._outside.random_raw())


class TapedStream:
    r"""A keystream for a SeededRng: the tape or, if no tape is played, the keystream ``behind``."""

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


def _read_tape(rng: SeededRng, stream: Stream) -> None:
    rng._stream = TapedStream(stream, rng._stream)  # type: ignore[assignment]  # it has the methods of a keystream


class Session:
    r"""The state of the RNG hooks in a replay; :meth:`play` runs a call on a tape.

    ``constants`` are the seeds known to be constants of the program. While ``learning`` is true,
    seeded generators do not read the tape, so that repeated seeds can be detected.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.tape: Tape | None = None
        self.constants: frozenset[Seeded] = frozenset()
        self.learning = False
        self.interrupted: BaseException | None = None
        # The state of the generator of the module `random` before the target changed it, or None.
        self.moved: Any = None
        # The Random instances of this run, with the sources that they read; the source is None if
        # an instance does not read the tape.
        self.instances: dict[int, tuple[random.Random, Stream | None]] = {}
        self._copies: dict[Seeded, tuple[str, int]] = {}
        self._global = TapeBits(stream=Stream("numpy.random"))

    def given(self, *, ours: bool = False) -> Any:
        r"""The generator passed to a target: dpcore's SeededRng or, without ``ours``, numpy's."""
        if not ours:
            return _GENERATOR(TapeBits(stream=Stream(_GIVEN)))
        rng: SeededRng = _as_it_is(SeededRng, 0)  # the target does not choose this seed
        _read_tape(rng, Stream(_GIVEN))
        return rng

    def play(self, tape: Tape, call: Callable[[], Any]) -> Any:
        r"""Run ``call()`` with every draw of this thread read from ``tape``."""
        before = _get_bits()
        self.moved = None
        self.instances.clear()
        self._copies.clear()
        self.interrupted = None
        try:
            _set_bits(self._global)
            # Discard the second normal that gauss() stored in an earlier call.
            half, _MODULE.gauss_next = _MODULE.gauss_next, None
            self.tape = tape
            returned = call()
        finally:
            self.tape = None
            _set_bits(before)
            # Restore the state only if the target changed it: other threads continue to draw.
            if self.moved is not None:
                random.setstate(self.moved)
            _MODULE.gauss_next = half
        if self.interrupted is not None:
            raise self.interrupted
        return returned

    def seeded(self, kind: str, seed: Any) -> Stream | None:
        r"""The stream for a generator with ``seed``; None if the generator must draw as usual."""
        tape = self.tape
        if tape is None:
            return None
        found = Seeded(kind, _frozen(seed))
        tape.met.add(kind)
        tape.seeds.append(found)
        if self.learning or found in self.constants:
            return None
        # Equal seeds give equal draws.
        source, copies = self._copies.get(found, ("", 0))
        source = source or tape.source(f"{kind}, seeded")
        self._copies[found] = (source, copies + 1)
        return Stream(source, copies)

    def fresh(self, kind: str) -> Stream:
        r"""The stream of the tape for a generator that was created without a seed."""
        tape = self.tape
        if tape is None:
            return Stream(kind)
        tape.met.add(kind)
        return Stream(tape.source(kind))


_session: Session | None = None


def install(session: Session | None) -> None:
    r"""Make ``session`` the active session; None deactivates the hooks."""
    global _session  # noqa: PLW0603 - one process has one set of hooks
    _session = session


def current() -> Session | None:
    r"""The active session if it plays a tape in this thread, otherwise None."""
    return None if playing() is None else _session


def playing() -> Tape | None:
    r"""The tape that is played in this thread, or None."""
    session = _session
    if session is None or session.thread != threading.get_ident():
        return None
    return session.tape


def _frozen(seed: Any) -> Any:
    # A hashable form of a seed, equal for equal seeds.
    if isinstance(seed, np.random.SeedSequence):
        return ("SeedSequence", _frozen(seed.entropy), tuple(seed.spawn_key))
    if isinstance(seed, np.ndarray | np.generic):
        return _frozen(seed.tolist())
    if isinstance(seed, list | tuple):
        return tuple(_frozen(part) for part in seed)
    return seed if isinstance(seed, int | float | str | bytes) else repr(seed)


PLAIN: Final = frozenset({"random", "Random", "numpy.random", "numpy Generator", "RandomState"})
r"""The kinds of sources that are not cryptographic.

The argument ``rng`` is not among them: the audit passes it to the target, and in production the
caller of the target is responsible for it.
"""

EARLY: Final = ", made at import"
r"""The suffix of the name of a source that was created before the run."""

_BITS: Final = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_OPEN: Final = threading.Lock()

# The originals, from before anything is patched.
_STATE: Final = np.random.RandomState
_SYSTEM_BITS: Final = SystemRng.bits
_SYSTEM_WORDS: Final = SystemRng.words
_URANDOM: Final = os.urandom
_BASE: Final[Any] = random.Random.__bases__[0]
_SEED: Final = random.Random.seed
_SEEDED_INIT: Final = SeededRng.__init__
_GET_STATE: Final = np.random.get_state
_SET_STATE: Final = np.random.set_state
_GLOBAL: Final[Any] = np.random.mtrand._rand


@contextmanager
def hooked_rngs(function: Callable[..., Any] | None = None) -> Iterator[Session]:
    r"""A context with RNG hooks on Python, numpy, dpcore and the sources in ``function``.

    Raises RuntimeError if another such context is open in this process.
    """
    if not _OPEN.acquire(blocking=False):
        raise RuntimeError(
            "only one replay can run at a time: it replaces the process's random sources"
        )
    try:
        with ExitStack() as undo:
            session = Session()
            install(session)
            undo.callback(_restore_state, _GET_STATE(legacy=False))
            swaps = _exchange(undo)
            if function is not None:
                _exchange_held(undo, function, swaps)
            yield session
    finally:
        install(None)
        _OPEN.release()


def _restore_state(before: dict[str, Any]) -> None:
    # Restore only the normal draw that numpy.random stores for its next call, because playing a
    # tape discards it. The rest of the state is not restored, as other threads may have drawn.
    kept = {name: before[name] for name in ("has_gauss", "gauss")}
    _SET_STATE({**_GET_STATE(legacy=False), **kept})


def _set(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    # Replace an attribute. To undo, restore the attribute of the owner, or delete it if the
    # original was inherited.
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


def _exchange(undo: ExitStack) -> list[tuple[Any, Any]]:
    # Pairs of original and replacement, for code that imported the original by name.
    swaps: list[tuple[Any, Any]] = []

    def exchange(owner: Any, name: str, value: Any) -> None:
        swaps.append((getattr(owner, name), value))
        _set(undo, owner, name, value)

    _set(undo, SystemRng, "bits", _system_bits)
    _set(undo, SystemRng, "words", _system_words)
    _set(undo, SeededRng, "__init__", _seeded_init)
    # Noise laws buffer draws only for a SystemRng. During a replay no generator counts as a
    # SystemRng, so no earlier draw is used on a tape, and no draw from a tape is used later.
    _set(undo, dpcore.noise, "SystemRng", type("NoSystemRng", (), {}))
    _set(undo, dpcore.noise, "SYSTEM", None)

    _set(undo, random.Random, "random", _random_random)
    _set(undo, random.Random, "getrandbits", _random_getrandbits)
    _set(undo, random.Random, "seed", _random_seed)
    for name in ("random", "getrandbits", "seed"):
        exchange(random, name, getattr(_MODULE, name))
    exchange(os, "urandom", _urandom)
    _set(undo, random, "_urandom", _urandom)
    if hasattr(os, "getrandom"):
        exchange(os, "getrandom", lambda size, flags=0: _urandom(size))  # noqa: ARG005 - the name is public

    exchange(np.random, "default_rng", _default_rng)
    exchange(np.random, "seed", _global_seed)
    exchange(np.random, "RandomState", _stand_in(_STATE, "RandomState", _STATE))
    for name in _BITS:
        original = getattr(np.random, name)
        exchange(np.random, name, _stand_in(original, "numpy Generator", lambda bits: bits))
    return swaps


def _system_bits(self: SystemRng, count: int) -> int:
    tape = playing()
    return _SYSTEM_BITS(self, count) if tape is None else tape.bits(Stream("SystemRng"), count)


def _system_words(self: SystemRng, count: int) -> Words:
    tape = playing()
    return _SYSTEM_WORDS(self, count) if tape is None else tape.words(Stream("SystemRng"), count)


def _seeded_init(self: SeededRng, seed: int) -> None:
    _SEEDED_INIT(self, seed)
    session = current()
    if session is not None and (stream := session.seeded("SeededRng", self.seed)) is not None:
        _read_tape(self, stream)


def _urandom(size: int, /) -> bytes:
    tape = playing()
    if tape is None or size <= 0:
        return _URANDOM(size)
    return tape.bits(Stream("os.urandom"), 8 * size).to_bytes(size, "big")


def _tape_reader(instance: random.Random) -> tuple[Tape, Stream] | None:
    # The source that an instance of Random reads, or None if it does not read the tape.
    tape, session = playing(), current()
    if tape is None or session is None:
        return None
    known = session.instances.get(id(instance))
    if known is not None:
        return None if known[1] is None else (tape, known[1])
    stream = Stream("random") if instance is _MODULE else session.fresh(f"Random{EARLY}")
    session.instances[id(instance)] = (instance, stream)
    return tape, stream


def _random_random(self: random.Random) -> float:
    read = _tape_reader(self)
    if read is None:
        return float(_BASE.random(self))
    return read[0].double(read[1])


def _random_getrandbits(self: random.Random, k: int, /) -> int:
    read = _tape_reader(self)
    if read is None or k < 0:
        return int(_BASE.getrandbits(self, k))
    return read[0].bits(read[1], k) if k else 0


def _random_seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    session = current()
    if session is not None and self is _MODULE and session.moved is None:
        session.moved = random.getstate()
    _SEED(self, a, version)
    if session is None:
        return
    stream = session.fresh("Random") if a is None else session.seeded("Random", a)
    session.instances[id(self)] = (self, stream)


def _bits_for(kind: str, seed: Any) -> TapeBits | None:
    # The replacement for a numpy generator, or None to use the original.
    session = current()
    if session is None:
        return None
    stream = session.fresh(kind) if seed is None else session.seeded(kind, seed)
    return None if stream is None else TapeBits(stream=stream)


def _default_rng(seed: Any = None) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, np.random.BitGenerator):
        return _GENERATOR(seed)
    bits = _bits_for("numpy Generator", seed)
    return _GENERATOR(_as_it_is(_PCG64, seed) if bits is None else bits)


def _as_it_is(original: Callable[..., Any], *seed: Any) -> Any:
    # No tape is read here, because numpy draws when it creates a generator.
    session = current()
    if session is None:
        return original(*seed)
    tape, session.tape = session.tape, None
    try:
        return original(*seed)
    finally:
        session.tape = tape


def _stand_in(original: type, kind: str, make: Callable[[TapeBits], Any]) -> type:
    # A class that replaces a bit generator: it creates readers of the tape, or originals.
    class StandIn(type):
        def __call__(cls, seed: Any = None) -> Any:
            if isinstance(seed, np.random.BitGenerator):
                return original(seed)
            bits = _bits_for(kind, seed)
            return _as_it_is(original, seed) if bits is None else make(bits)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    return StandIn(original.__name__, (), {})


def _global_seed(seed: Any = None) -> None:
    session = current()
    if session is None:
        _GLOBAL.seed(seed)  # the original is a method of this object
    elif seed is None:
        session.fresh("numpy.random")
    else:
        stream = session.seeded("numpy.random", seed)
        bits = _as_it_is(_STATE, seed)._bit_generator if stream is None else TapeBits(stream=stream)
        _set_bits(bits)


def _exchange_held(
    undo: ExitStack, function: Callable[..., Any], swaps: list[tuple[Any, Any]]
) -> None:
    plain = inspect.unwrap(function)
    plain = getattr(plain, "func", plain)  # functools.partial
    owner = getattr(plain, "__self__", None)
    for held in (getattr(plain, "__globals__", {}), getattr(owner, "__dict__", {})):
        for name, value in list(held.items()):
            stand_in = _for_held(undo, value, swaps)
            if stand_in is not None:
                undo.callback(held.__setitem__, name, value)
                held[name] = stand_in
    for cell in getattr(plain, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            value = cell.cell_contents
            stand_in = _for_held(undo, value, swaps)
            if stand_in is not None:
                undo.callback(setattr, cell, "cell_contents", value)
                cell.cell_contents = stand_in


def _for_held(undo: ExitStack, value: Any, swaps: list[tuple[Any, Any]]) -> Any | None:
    for original, stand_in in swaps:
        if value is original:
            return stand_in
    match value:
        case np.random.Generator():
            return _GENERATOR(TapeBits(stream=Stream(f"numpy Generator{EARLY}")))
        case np.random.RandomState() if value is not _GLOBAL:
            return _STATE(TapeBits(stream=Stream(f"RandomState{EARLY}")))
        case SeededRng():
            undo.callback(setattr, value, "_stream", value._stream)
            _read_tape(value, Stream(f"{value!r}{EARLY}"))
    return None
