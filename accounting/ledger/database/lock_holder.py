r"""Find the process that holds the lock of a ledger, if it is known."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

_LOCKS: Final = Path("/proc/locks")
_WRITE_LOCK: Final = 120  # SQLite's WAL_WRITE_LOCK: the number of a byte of the file -shm

_RETRY: Final = "then charge again: the same batch is charged once"

# A charging session locks the row of the ledger; the one that is not waiting for a lock holds it.
_HOLDERS: Final = text(
    "SELECT a.pid, a.state, extract(epoch FROM now() - a.xact_start)::int AS since"
    " FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.relation = 'ledger'::regclass AND l.mode IN ('RowShareLock', 'AccessExclusiveLock')"
    " AND l.granted AND a.pid <> pg_backend_pid() AND a.wait_event_type IS DISTINCT FROM 'Lock'"
    " ORDER BY a.xact_start LIMIT 1"
)


def waited_for_process(path: Path, seconds: float) -> str:
    r"""The reason why a charge to the file ``path`` timed out after ``seconds``, in one line."""
    who = _named(_holder(path))
    return f"waited {seconds:g} s for {who}: wait for it to finish, or stop it; {_RETRY}"


def waited_for_session(engine: Engine, seconds: float) -> str:
    r"""The reason why a charge on a PostgreSQL server timed out, in one line."""
    with suppress(SQLAlchemyError), engine.connect() as connection:
        found = connection.execute(_HOLDERS).one_or_none()
        if found is not None:
            state = f"{found.state}, its transaction began {found.since} s ago"
            who = f"server process {found.pid} ({state})"
            end = f"wait for it to finish, or stop it (SELECT pg_terminate_backend({found.pid}))"
            return f"waited {seconds:g} s for {who}: {end}; {_RETRY}"
    return (
        f"waited {seconds:g} s for another session that is writing: wait for it to finish; {_RETRY}"
    )


def _named(holder: int | None) -> str:
    if holder is None:
        return "another process that is writing, which this system cannot identify"
    if holder == os.getpid():
        return f"another thread of this process ({holder}), which is writing"
    name = ""
    with suppress(OSError):
        # The arguments of the process are not shown: they may contain a password.
        command = Path(f"/proc/{holder}/comm").read_text(encoding="utf-8", errors="replace")
        name = f" ({ascii(command.strip())[1:-1]})"
    return f"process {holder}{name} that is writing"


def _holder(path: Path) -> int | None:
    # The lock is not read from the open file: closing it would drop the locks of SQLite.
    with suppress(OSError, ValueError):
        index = Path(f"{path.resolve()}-shm").stat()
        device = f"{os.major(index.st_dev):02x}:{os.minor(index.st_dev):02x}:{index.st_ino}"
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "POSIX", _, "WRITE", pid, at, first, last] if at == device:
                    if int(first) <= _WRITE_LOCK <= (_WRITE_LOCK if last == "EOF" else int(last)):
                        return int(pid) if int(pid) > 0 else None
    return None
