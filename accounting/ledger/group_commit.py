r"""Group commit: concurrent charges to an SQLite file share a transaction and a disk flush.

A caller that must wait publishes its requests to the other callers. One caller at a time is the
leader: it executes all published requests in one transaction, and publishes their outcomes after
COMMIT. This mechanism decides only which requests share a transaction; the lock of the database
excludes other writers. Proofs: docs/proofs/ledger.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeAlias
from uuid import uuid4

from accounting.ledger.charge_or_refuse import Book, Charged
from accounting.ledger.charge_request import CheckedRequest
from accounting.ledger.errors import BudgetExhausted, LedgerDamaged, LedgerUnavailable, Receipt
from accounting.ledger.hash_chain import canonical
from accounting.ledger.sqlite_file import PRIVATE
from accounting.ledger.transactions_and_locks import Store
from dpcore.errors import DpcoreError, InvalidParameter

Work: TypeAlias = Callable[[Sequence[CheckedRequest]], list[Charged]]
"""A function that executes requests in one transaction, and returns their outcomes in order."""

_CUT: Final = (
    "a thread that committed several charges was interrupted: charge again, the batch is charged "
    "only once"
)

_HEADER: Final = 64  # bytes
_LONGEST: Final = 1 << 16  # the largest request that another process executes, in bytes
_MOST: Final = 1 << 20  # the bytes that are read at once, and after which the queue is restarted
_LOOK: Final = 0.0006  # the interval at which the queue is polled, in seconds
_LONGEST_PAUSE: Final = 0.004  # the longest pause for other requests or for a leader, in seconds

_ASKED: Final = b'{"asked":'  # the start of the line of a request

_ERRORS: Final = {
    each.__name__: each
    for each in (BudgetExhausted, LedgerDamaged, LedgerUnavailable, InvalidParameter)
}


class Queue:
    r"""A queue in a file, through which concurrent charges to an SQLite file share transactions.

    The file ``<name>-queue`` is locked by the leader, and requests are appended to it as lines. A
    leader records in the file, before its transaction, which lines it takes, and after it the
    outcomes of the requests in these lines.

    If a leader is killed, its lock is released. If it took a request and recorded no outcome, the
    process that made the request executes it. If the batch is already charged then, the outcome is
    :class:`LedgerUnavailable`, since it is unknown which request charged it.

    The file need not be flushed to disk, and is not needed after the waiting processes end. A
    process that cannot use the file charges without it.
    """

    def __init__(self, store: Store, book: Book, work: Work) -> None:
        self._store, self._book, self._work = store, book, work
        # The number of other callers, and the length of the last wait; they affect only the speed.
        self._company, self._pause = 0, 0.0

    def take(self, requests: Sequence[CheckedRequest]) -> list[Charged]:
        r"""Charge ``requests``, and return their outcomes in the same order."""
        handle = self._opened()
        if handle is None:
            return self._work(requests)
        try:
            return self._taken(handle, requests)
        except OSError as error:
            raise LedgerUnavailable(self._store.where, error.strerror or str(error)) from error
        finally:
            # Closing the file does not suffice: a forked child may have it open, too.
            fcntl.flock(handle, fcntl.LOCK_UN)
            _HELD.discard(handle)
            os.close(handle)

    def _opened(self) -> int | None:
        try:
            handle = os.open(self._store.queue, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError:
            return None
        _HELD.add(handle)
        if not os.fstat(handle).st_size:
            # Like the log of SQLite: users who may write the ledger may write the queue.
            with suppress(OSError):
                os.fchmod(handle, stat.S_IMODE(self._store.mode()))
        return handle

    def _taken(self, handle: int, requests: Sequence[CheckedRequest]) -> list[Charged]:
        me, uncertain = uuid4().hex, False
        if not _locked(handle):
            epoch, end = self._published(handle, me, requests)
            try:
                answered = self._waited(handle, me, end)
            except BaseException:
                if end:
                    self._append(canonical({"gone": me}))
                raise
            if answered is not None:
                return answered
            now, done = _header(handle)
            uncertain = end > 0 and (now != epoch or done >= end)
        cut = LedgerUnavailable(self._store.where, _CUT)
        return [
            cut if uncertain and isinstance(each, Receipt) and each.repeated else each
            for each in self._led(handle, me, requests)
        ]

    def _published(
        self, handle: int, me: str, requests: Sequence[CheckedRequest]
    ) -> tuple[str, int]:
        # Returns the epoch of the queue and the position after the request, 0 if it was not
        # published.
        epoch, _ = _header(handle)
        # A value is drawn by the process that requests it, in a separate transaction.
        drawn = any(each.draw is not None for each in requests)
        if drawn or sum(len(each.names) for each in requests) > _LONGEST // 4:
            return epoch, 0
        waiting = [each.to_json() for each in requests]
        until = time.time() + self._store.patience
        message = canonical({"asked": waiting, "group": self._group(), "id": me, "until": until})
        return epoch, self._append(message) if epoch and len(message) < _LONGEST else 0

    def _waited(self, handle: int, me: str, at: int) -> list[Charged] | None:
        # Returns the outcomes from another process; if there are none, takes the lock, returns
        # None.
        start, rest, mine = time.monotonic(), b"", f'"to":"{me}"}}'.encode()
        last = start + self._store.patience
        time.sleep(self._pause)
        while True:
            locked = _locked(handle)
            while at and (read := os.pread(handle, _LONGEST, at)):
                at += len(read)
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    if line.endswith(mine):
                        self._pause = min((time.monotonic() - start) / 2, _LONGEST_PAUSE)
                        return [_outcome_of(*each) for each in json.loads(line)["outcomes"]]
            if locked:
                return None
            now = time.monotonic()
            if now > last:
                raise self._store.waited()
            time.sleep(min(max(_LOOK, (now - start) / 4), _LONGEST_PAUSE))

    def _led(self, handle: int, me: str, requests: Sequence[CheckedRequest]) -> list[Charged]:
        epoch, done = _header(handle)
        size = os.fstat(handle).st_size
        if not epoch or done > size or done == size > _MOST:
            os.ftruncate(handle, 0)
            epoch, done = uuid4().hex, _HEADER
            os.pwrite(handle, _head(epoch, done), 0)
        lines = self._gathered(handle, done)
        lines = lines[: lines.rfind(b"\n") + 1]
        others = self._others(lines, me)
        if lines:
            os.pwrite(handle, _head(epoch, done + len(lines)), 0)
        start = time.monotonic()
        outcomes = iter(self._work([*requests, *chain(*others.values())]))
        self._pause = min(time.monotonic() - start, _LONGEST_PAUSE)
        own = [next(outcomes) for _ in requests]
        answers = []
        for to, waiting in others.items():
            results = [_json_of(next(outcomes)) for _ in waiting]
            answers.append(canonical({"outcomes": results, "to": to}))
        if answers:
            self._append("\n".join(answers))
        self._company = len(others) + os.pread(handle, _MOST, done + len(lines)).count(_ASKED)
        return own

    def _gathered(self, handle: int, done: int) -> bytes:
        # Callers that were answered together tend to return together: wait for all of them.
        last = time.monotonic() + self._pause
        while True:
            lines = os.pread(handle, _MOST, done)
            if lines.count(_ASKED) >= self._company or time.monotonic() > last:
                return lines
            time.sleep(_LOOK / 4)

    def _others(self, lines: bytes, me: str) -> dict[str, list[CheckedRequest]]:
        found, group, now = dict[str, list[CheckedRequest]](), self._group(), time.time()
        for line in lines.split(b"\n"):
            # Ignore incomplete lines, and lines with the outcomes of others.
            with suppress(ValueError, TypeError, LookupError, RecursionError):
                message = json.loads(line)
                if "gone" in message:
                    found.pop(message["gone"], None)
                elif message["group"] == group and message["id"] != me and now <= message["until"]:
                    counters = len(self._book.filter.limits)
                    found[message["id"]] = [
                        CheckedRequest.of_json(each, counters) for each in message["asked"]
                    ]
        return found

    def _group(self) -> str:
        # Only requests for the same budget and the same open file can share a transaction.
        return f"{self._book.identity} {self._store.file}"

    def _append(self, lines: str) -> int:
        # Returns the position after the lines in the queue, or 0 if they could not be written.
        data = f"\n{lines}\n".encode()
        with suppress(OSError):
            handle = os.open(self._store.queue, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.write(handle, data) == len(data):
                    return os.lseek(handle, 0, os.SEEK_CUR)
            finally:
                os.close(handle)
        return 0


# Descriptors that are open: a child that kept one would keep the lock after the parent is killed.
_HELD: Final[set[int]] = set()


def _close_inherited() -> None:
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _header(handle: int) -> tuple[str, int]:
    # The epoch of the queue since its restart, and the position up to which requests were taken.
    try:
        epoch, done = os.pread(handle, _HEADER, 0).decode().split()
        return epoch, int(done)
    except ValueError:
        return "", 0


def _head(epoch: str, done: int) -> bytes:
    return f"{epoch:32} {done:30}\n".encode()


def _json_of(outcome: Charged) -> list[Any]:
    if isinstance(outcome, Receipt):
        return [Receipt.__name__, {each: getattr(outcome, each) for each in Receipt.__slots__}]
    return [type(outcome).__name__, outcome.args]


def _outcome_of(kind: str, fields: Any) -> Charged:
    if kind == Receipt.__name__:
        return Receipt(**{**fields, "left_out": tuple(fields["left_out"])})
    make: Callable[..., DpcoreError] = _ERRORS[kind]
    return make(*(tuple(x) if isinstance(x, list) else x for x in fields))
