r"""Find the verifier of a certificate by its schema, including those of sibling packages.

A sibling package registers its reader in the group ``dpcore.certificates`` as ``schema =
"module:function"``: a function of the text that returns a ``Verdict`` and never raises. So ``dpcore
verify`` checks the certificates of a sibling without importing it directly. The schema of
accounting cannot be replaced, and two readers of one schema raise an error.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from accounting.certificates.canonical import SCHEMA
from accounting.certificates.verdict import Finding, Status, Verdict, verify
from dpcore.errors import InvalidParameter

GROUP: Final = "dpcore.certificates"
r"""The name of the group of entry points."""

MOST_TEXT: Final = 1 << 22
r"""The largest size of a certificate of any schema, in bytes."""

_OURS: Final = "dpcore-"


def verdict_of(text: bytes) -> Verdict:
    r"""The verdict of the verifier registered for the text's schema."""
    if len(text) > MOST_TEXT:
        reason = f"must be at most {MOST_TEXT} bytes"
        found = Finding(where="certificate", status=Status.FAILS, reason=reason)
        return Verdict(findings=(found,))
    entry = _entry_of(text)
    if entry is None:
        return verify(text)
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


def why_not_a_certificate(text: bytes) -> str | None:
    r"""The reason why no installed package can verify the text; None if one can.

    A text beyond :data:`MOST_TEXT` is not parsed: :func:`verdict_of` refuses it.
    """
    if len(text) > MOST_TEXT:
        return None
    try:
        schema = _schema_of(text)
    except (ValueError, RecursionError):
        return "is not a certificate: it is not JSON"
    if schema is None:
        return 'is not a certificate: it has no "schema"'
    if schema == SCHEMA or entry_points(group=GROUP, name=schema):
        return None
    if schema.startswith(_OURS) and "certificate" in schema:
        return (
            f"is a certificate with schema {schema[:80]!a}: this version of dpcore reads {SCHEMA}"
        )
    if schema.startswith(_OURS):
        return (
            f"is a result ({schema[:80]!a}), not a certificate: use the certificate that was "
            "written with it; for a bandit run, certificate-*.json in the folder of --output"
        )
    return f"no installed package reads certificates of the schema {schema[:80]!a}"


def _schema_of(text: bytes) -> str | None:
    document = json.loads(text)
    schema = document.get("schema") if isinstance(document, dict) else None
    return schema if isinstance(schema, str) else None


def _entry_of(text: bytes) -> EntryPoint | None:
    # None for the schema of this package, and for a schema that no package reads.
    try:
        schema = _schema_of(text)
    except (ValueError, RecursionError):
        return None
    if schema is None or schema == SCHEMA:
        return None
    found = tuple(entry_points(group=GROUP, name=schema))
    if len(found) > 1:
        both = ", ".join(sorted(f"{each.value} of {_package(each)}" for each in found))
        reason = f"has {len(found)} readers ({both}): uninstall all but one"
        raise InvalidParameter("schema", schema, reason)
    return found[0] if found else None


def _broken(entry: EntryPoint, what: str) -> InvalidParameter:
    reason = f"its reader {entry.value} of {_package(entry)} {what}"
    return InvalidParameter("schema", entry.name, reason)


def _package(entry: EntryPoint) -> str:
    return "an unnamed package" if entry.dist is None else str(entry.dist.name)


def _named(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
