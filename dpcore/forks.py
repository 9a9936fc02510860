r"""Detect forks, and clear state that a parent and a child process must not share.

A child process starts with the memory of its parent, including random numbers drawn ahead and locks
held by other threads. An object that must not be used by both processes registers with
:func:`forget_after_fork` and checks the flag ``HERE`` before each use. If the flag is false, the
process is a new child, and the object first calls :func:`forget_inherited`. Fork hooks alone do not
suffice: the child continues if a signal handler raises in a hook, and native code bypasses hooks.
Proof: docs/proofs/rng.md.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from typing import Any, ClassVar, Final, NoReturn

# MADV_WIPEONFORK of the kernel's asm-generic/mman-common.h; Python has no name for it.
_WIPE_ON_FORK: Final = 18
_NO_ADVICE: Final = -1


class _Process:
    # HERE on systems that cannot wipe a page at a fork: compares the process ID. The ID is in a
    # list, so that the fork hook is list.clear, a C function that no signal handler interrupts; the
    # hook is needed because process IDs are reused.
    __slots__ = ("_home",)

    def __init__(self) -> None:
        self._home: list[int] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._home.clear)

    def __bool__(self) -> bool:
        return self._home == [os.getpid()]

    @property
    def value(self) -> bool:
        return bool(self)

    @value.setter
    def value(self, mark: bool) -> None:
        self._home[:] = [os.getpid()] * mark


def _mark() -> ctypes.c_bool | _Process:
    # Uses a memory page that is zeroed in every child however it was forked, if the system has it.
    if sys.platform != "linux":
        return _Process()
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        page.madvise(_WIPE_ON_FORK)
    except OSError:
        return _Process()
    try:
        page.madvise(_NO_ADVICE)
    except OSError:
        return ctypes.c_bool.from_buffer(page)
    return _Process()  # an emulator that accepts any advice and ignores it


HERE: Final = _mark()
"""False in a forked process that still has inherited state; use as ``if not HERE``."""
HERE.value = True

_REGISTERED: Final[set[weakref.ref[Any]]] = set()


def forget_after_fork(kept: Any) -> None:
    r"""Register an object whose ``forget()`` clears its state in a forked process.

    Register an object before it holds randomness drawn ahead of use: a child that inherited it
    would release the same noise as its parent.
    """
    if not HERE:
        forget_inherited()
    _REGISTERED.add(weakref.ref(kept, _REGISTERED.discard))


def forget_inherited() -> None:
    r"""In a forked process, call ``forget()`` of all registered objects; otherwise do nothing.

    If an exception interrupts this function, it starts again at the next use. Several threads may
    run it simultaneously, so a thread may clear an object that another thread has already refilled.
    """
    # The list is copied before HERE is read, so that objects registered later are not forgotten.
    registered = _REGISTERED.copy()
    if HERE:
        return
    for reference in registered:
        kept = reference()
        if kept is not None:
            kept.forget()
    HERE.value = True


class ProcessLock:
    r"""A reentrant lock that is not held in a new child process, even if the parent held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.forget()
        forget_after_fork(self)

    def here(self) -> threading.RLock:
        if not HERE:
            forget_inherited()
        return self._lock

    def forget(self) -> None:
        r"""Create a new lock; called in a forked process."""
        self._lock = threading.RLock()


class OwnedState:
    r"""A state that belongs to one process and one thread at a time, and cannot be copied.

    ``_state`` is None while the state is in use, so that a signal handler or an Rng cannot use it a
    second time. It remains None after an interrupted use and in the child of a fork.
    """

    __slots__ = ("__weakref__", "_forgotten", "_lock", "_state")

    _one: ClassVar[str]
    r"""Why a copy is not allowed, for the error message."""

    def __init__(self, state: object) -> None:
        self._state: Any = state
        self._forgotten = False
        self._lock = ProcessLock()
        forget_after_fork(self)

    def forget(self) -> None:
        r"""Drop the state; called in the child of a fork."""
        self._forgotten = True
        self._state = None

    def _gone(self) -> bool:
        # A signal can interrupt fork hooks, so each use checks for a fork. After a fork during a
        # use, the flag set by the hooks remains, so the interrupted use does not restore the state.
        if not HERE:
            forget_inherited()
        return self._forgotten

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: {self._one}")


if hasattr(os, "register_at_fork"):
    # The hook erases secrets even in a child that never draws.
    os.register_at_fork(after_in_child=forget_inherited)
