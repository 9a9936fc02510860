r"""Which database a ledger is asked for, and how it is named in messages."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from dpcore.errors import InvalidParameter

__all__ = ["address_of", "is_file", "where_of"]

_KINDS: Final = "must be a path, sqlite:///path or postgresql://user@host/database"


def address_of(url: object) -> URL:
    r"""What a path or a URL means.

    >>> address_of("postgresql://ada:secret@host:port/database")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: url = postgresql://...: must be a path, sqlite:///path or ...

    Raises :class:`InvalidParameter` for anything but a file or PostgreSQL. What a URL holds, a
    password among it, is never shown.
    """
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str):
        raise InvalidParameter("url", url, _KINDS)
    scheme, split, rest = url.partition("://")
    shown = f"{scheme}://..." if rest else url
    if not url.strip() or not url.isprintable():
        raise InvalidParameter("url", ascii(shown), _KINDS)
    try:
        address = make_url(url) if split else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        raise InvalidParameter("url", shown, _KINDS) from None
    if address.drivername in ("sqlite", "sqlite+pysqlite"):
        if address.database in (None, "", ":memory:"):
            raise InvalidParameter("url", shown, "a ledger in memory forgets: give a file")
        if address.host or address.username or address.query:
            # Such as nolock=1, which would let two charge at once.
            raise InvalidParameter("url", shown, f"{_KINDS}, without options")
        return address
    if address.drivername in ("postgresql", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise InvalidParameter("url", shown, "needs psycopg: pip install 'dpcore[postgresql]'")
        return address.set(drivername="postgresql+psycopg")
    raise InvalidParameter("url", shown, _KINDS)


def where_of(address: URL) -> str:
    r"""Which database this is, for messages: nothing in it opens one.

    >>> where_of(address_of("postgresql://ada:secret@host/database"))
    'postgresql://host/database'
    """
    if is_file(address):
        return address.database or ""
    asked = address.query.get("host", "")
    host = address.host or (asked if isinstance(asked, str) else ",".join(asked))
    return f"postgresql://{host}/{address.database or ''}"


def is_file(address: URL) -> bool:
    r"""Whether it is an SQLite file."""
    return address.get_backend_name() == "sqlite"
