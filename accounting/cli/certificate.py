r"""``dpcore certify`` and ``dpcore verify``: write a privacy certificate, and check one.

Another package registers a verifier of its own certificates in the entry-point group
``dpcore.certificates``, as ``schema = "module:function"``. The function takes the bytes of a
certificate, returns a ``Verdict`` and never raises. So ``dpcore verify`` needs no direct import of
that package. Each schema must have at most one verifier; that of accounting cannot be replaced.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accounting.certificates.canonical_text import SCHEMA
from accounting.cli import answers
from accounting.cli.composition_options import Releases, whole
from dpcore.cli.files import check_writable, read_bytes, write_whole
from dpcore.cli.options import AsJson, argument, command_group, flag, named, option, with_fields
from dpcore.cli.terminal import progress_bar, show
from dpcore.errors import NEGATIVE_ANSWER, InvalidParameter
from dpcore.numbers.parameter import rational

if TYPE_CHECKING:
    from accounting.certificates.verify_certificate import Verdict


GROUP: Final = "dpcore.certificates"
r"""The name of the group of entry points."""

MOST_TEXT: Final = 1 << 22
r"""The largest size of a certificate of any schema, in bytes."""

_OURS: Final = "dpcore-"
_LONGEST: Final = 10**6
_DECIDED: Final = {
    "kernel": "decided by the integer kernel",
    "engine": "decided in part by the software that issued it, not by the integer kernel",
    "estimate": (
        "checked in part by an estimate, which is not a proof; a certificate made with --evidence "
        "is proven"
    ),
}
_TENTHS: Final = 10
_MARGIN: Final = 26

Deadline = Annotated[str, option("SECONDS", "Time limit for checking all claims.", default=...)]


class Form(StrEnum):
    r"""The output format of ``dpcore verify``."""

    TEXT = "text"
    JSON = "json"
    NIST = "nist"
    REGISTRY = "registry"


certify = command_group("certify")
verify = command_group("verify")


@certify.command()
@with_fields
def certify_command(
    releases: Releases,
    *,
    delta: list[str] | None = option(
        "DELTA", "State epsilon at this delta; repeatable. (default: 1e-6)"
    ),
    epsilon: list[str] | None = option("EPSILON", "State delta at this epsilon; repeatable."),
    order: list[str] | None = option(
        "ORDER", "State the Renyi divergence of this order; repeatable."
    ),
    visits: str | None = option(
        "K", "Certify returning users: each takes part in at most K rounds."
    ),
    digits: str = option("N", "Significant digits of each bound.", default="8"),
    evidence: bool = flag(
        "Write the bounds that the integer kernel proves, and its precision.", "--evidence"
    ),
    output: Path | None = option("FILE", "Write to FILE, and print its size.", "-o", "--output"),
    deadline: Deadline = "60",
) -> None:
    r"""Write a privacy certificate: exact parameters, assumptions and proven bounds, as JSON.

    Every claim is verified before it is written. With --evidence the claims are the bounds that the
    integer kernel proves, and dpcore verify proves them again.

    Example: dpcore certify --noise skellam:variance=400 --rounds 1000 --delta 1e-6 > c.json
    """
    from accounting.certificates.certify import certify as write
    from accounting.composition.composition_theorems import per_user

    check_writable("--output", output)
    if visits is None:
        total = releases.composed()
    else:
        visit, _ = releases.visit(visits)
        total = per_user(visit, max_visits=whole("--visits", visits, 1))
    names = ("delta", "epsilon", "order", "digits")
    with _in_time(deadline), named(*names, "rounds"):
        certificate = write(
            total,
            deltas=delta or ([] if epsilon or order else ["1e-6"]),
            epsilons=epsilon or [],
            orders=order or [],
            digits=whole("--digits", digits, 1),
            evidence=evidence,
        )
    text = certificate.text()
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole("--output", output, text)
        show([f"{output}: {len(text)} bytes"])


@verify.command()
def verify_command(
    files: list[str] = argument("FILE", "The certificates; - reads standard input."),
    *,
    deadline: Deadline = "60",
    form: Form = option(
        "FORMAT",
        "Print text, json, nist (the components of a guarantee in NIST SP 800-226) or "
        "registry (a draft entry for the deployments registry of OpenDP, as YAML).",
        "--format",
        default=Form.TEXT,
    ),
    as_json: AsJson = False,
) -> None:
    r"""Verify certificates: prove every claim, or compare it with an estimate; print the failures.

    The integer kernel decides. If it proves neither a claim nor its negation, and the certificate
    has no evidence, the claim is compared with an estimate. Certificates of bandit runs are
    also checked. Exit code: 0 all claims hold; 1 a claim fails, the file was changed, or a claim
    could not be checked (too large, or not within --deadline); 2 the file does not exist, is not a
    certificate, or has an unknown format. Several files have one line each, and the exit code of
    the worst; the first one with exit code 2 ends the command.

    Example: dpcore verify c.json
    """
    if len(files) > 1 and (as_json or form is not Form.TEXT):
        raise InvalidParameter("FILE", " ".join(files), "must be a single file for this format")
    holds = True
    for file in files:
        # Reading one byte beyond the limit detects a text that is too long or never ends.
        with _in_time(deadline):
            text = read_bytes("FILE", file, most=MOST_TEXT + 1, stdin=True)
            verdict = verdict_of(text, file)
        holds = holds and verdict.holds
        basis = [] if verdict.proof is None else [_DECIDED[verdict.proof]]
        if len(files) > 1:
            weaker = [] if verdict.proof == "kernel" else basis
            show(["; ".join([f"{file}: {_word(verdict)}", *weaker])])
        elif form in (Form.NIST, Form.REGISTRY):
            show(_exported(file, text, verdict, form))
        elif as_json or form is Form.JSON:
            show(verdict.to_json())
        else:
            show([*map(str, verdict.findings), *basis, _word(verdict)])
    if not holds:
        raise typer.Exit(NEGATIVE_ANSWER)


def _exported(name: str, text: bytes, verdict: Verdict, form: Form) -> list[str]:
    from accounting.certificates.certify import Certificate
    from accounting.certificates.export import nist_lines, registry_entry, yaml_lines

    try:
        document = Certificate.from_text(text).to_json()
    except InvalidParameter as error:
        what = f"cannot be printed as --format {form.value}: {error}"
        raise InvalidParameter("FILE", name, what) from None
    if form is Form.REGISTRY:
        return list(yaml_lines(registry_entry(document, verdict)))
    return answers.lines(nist_lines(document, verdict), _MARGIN)


@contextmanager
def _in_time(seconds: str) -> Iterator[None]:
    from accounting.certificates.deadline import deadline

    limit = rational("--deadline", seconds)
    if not 0 < limit <= _LONGEST:
        raise InvalidParameter("--deadline", seconds, f"must lie in (0, {_LONGEST}] seconds")
    with (
        progress_bar(f"at most {seconds} s", math.ceil(limit * _TENTHS)) as advance,
        deadline(float(limit), lambda past: advance(math.ceil(past * _TENTHS))),
    ):
        yield


def _word(verdict: Verdict) -> str:
    from accounting.certificates.verify_certificate import Status

    found = {finding.status for finding in verdict.findings}
    worst_first = {
        Status.FAILS: "DOES NOT HOLD",
        Status.UNDECIDED: "NOT DECIDED IN TIME: no claim fails, but not all were checked",
        Status.UNCHECKED: "NOT CHECKED IN FULL: no claim fails, but not all were checked",
        Status.ASSUMED: "every claim holds under the stated assumptions",
    }
    words = (word for status, word in worst_first.items() if status in found)
    return next(words, "every claim holds")


# -- readers of certificates ------------------------------------------------------------------


def verdict_of(text: bytes, file: str = "-") -> Verdict:
    r"""Verify ``text`` with the verifier registered for its schema; messages name ``file``.

    Raises :class:`InvalidParameter` if the text is not a certificate, or if its schema has no
    verifier, several verifiers or a faulty one. A text that is too long gives a failing verdict.
    """
    from accounting.certificates.verify_certificate import Verdict, misfit, verify

    if len(text) > MOST_TEXT:
        return Verdict(findings=(misfit("certificate", f"must be at most {MOST_TEXT} bytes"),))
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
    from accounting.certificates.verify_certificate import Verdict

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
    reason = f"its reader, {entry.value} of {_package(entry)}, {what}"
    return InvalidParameter("schema", entry.name, reason)


def _package(entry: EntryPoint) -> str:
    return "an unnamed package" if entry.dist is None else str(entry.dist.name)


def _named(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
