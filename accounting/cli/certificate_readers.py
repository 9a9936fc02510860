r"""Find the verifier of a certificate by its schema, also if a sibling package provides it.

A sibling package registers its reader in the group ``dpcore.certificates`` as ``schema =
"module:function"``: a function of the text that returns a ``Verdict`` and never raises. So ``dpcore
verify`` checks the certificates of a sibling without importing it directly. The schema of
accounting cannot be replaced, and two readers of one schema raise an error.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from accounting.certificates.canonical_text import SCHEMA
from accounting.certificates.verify_certificate import Finding, Status, Verdict, verify
from dpcore.errors import InvalidParameter

GROUP: Final = "dpcore.certificates"
r"""The name of the group of entry points."""

MOST_TEXT: Final = 1 << 22
r"""The largest size of a certificate of any schema, in bytes."""

_OURS: Final = "dpcore-"


def verdict_of(text: bytes, file: str = "-") -> Verdict:
    r"""The verdict of the verifier that is registered for the schema of the text of ``file``.

    Raises :class:`InvalidParameter` if the text is not a certificate, or if no package, several
    packages or a faulty package read its schema.
    """
    if len(text) > MOST_TEXT:
        reason = f"must be at most {MOST_TEXT} bytes"
        found = Finding(where="certificate", status=Status.FAILS, reason=reason)
        return Verdict(findings=(found,))
    schema = _schema_of(text, file)
    if schema == SCHEMA:
        return verify(text)
    entries = tuple(entry_points(group=GROUP, name=schema))
    if not entries:
        raise InvalidParameter("FILE", file, _unread(schema))
    if len(entries) > 1:
        both = ", ".join(sorted(f"{each.value} of {_package(each)}" for each in entries))
        reason = f"has {len(entries)} readers ({both}): uninstall all but one"
        raise InvalidParameter("schema", schema, reason)
    return _read(entries[0], text)


def _schema_of(text: bytes, file: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidParameter("FILE", file, "is not a certificate: it is not JSON") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str):
        raise InvalidParameter("FILE", file, 'is not a certificate: it has no "schema"')
    return schema


def _unread(schema: str) -> str:
    # The reason why no installed package verifies a document of this schema.
    schema_text = f"{schema[:80]!a}"
    if not schema.startswith(_OURS):
        return f"no installed package reads certificates of the schema {schema_text}"
    if "certificate" in schema:
        return f"is a certificate with schema {schema_text}: this version of dpcore reads {SCHEMA}"
    return (
        f"is a result ({schema_text}), not a certificate: use the certificate written with it; "
        "for a bandit run, certificate-*.json in the folder of --output"
    )


def _read(entry: EntryPoint, text: bytes) -> Verdict:
    try:
        reader: object = entry.load()
    except Exception as error:
        raise _broken(entry, f"cannot be imported: {_named(error)}") from error
    if not callable(reader):
        raise _broken(entry, "is not callable")
    try:
        answer: object = reader(text)
    except Exception as error:
        raise _broken(entry, f"raised {_named(error)}") from error
    if not isinstance(answer, Verdict):
        raise _broken(entry, f"returned {type(answer).__name__} instead of a Verdict")
    return answer


def _broken(entry: EntryPoint, what: str) -> InvalidParameter:
    reason = f"its reader {entry.value} of {_package(entry)} {what}"
    return InvalidParameter("schema", entry.name, reason)


def _package(entry: EntryPoint) -> str:
    return "an unnamed package" if entry.dist is None else str(entry.dist.name)


def _named(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
