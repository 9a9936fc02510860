r"""Every claim of a certificate, decided by the kernel or by a second path, and what is found.

A certificate that carries evidence is decided by the integer kernel, and what holds is proven; any
other is computed again by a second numerical path, whose error is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Protocol

from accounting.checker.clock import OutOfTime, bounded, tick
from accounting.checker.laws.law import Unchecked
from accounting.checker.proof import proven
from accounting.checker.text.reading import Claim, Malformed, Read, parsed, read
from accounting.checker.text.words import claim_in_words, rounds_in_words

__all__ = ["KERNEL", "SECOND_PATH", "Allowance", "Finding", "Status", "Verdict", "judged", "verify"]


KERNEL: Final = "kernel"
SECOND_PATH: Final = "second path"
"""What decided: the integer kernel, or a second numerical path."""


class Status(Enum):
    r"""What was found of one claim, or of the text. What is assumed was stated, and not derived."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "unchecked"
    UNDECIDED = "not decided in time"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    r"""``where`` in the certificate, the status, and why."""

    where: str
    status: Status
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.status.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    r"""What was found, a line a claim and a line a fault of the text; ``proof`` says what decided.

    >>> verify("{}").holds
    False
    >>> print(verify("{}"))
    schema: fails: must be dpcore-certificate/1
    """

    findings: tuple[Finding, ...]
    proof: str = SECOND_PATH

    @property
    def holds(self) -> bool:
        r"""Whether every claim was computed again and holds, given what is assumed.

        What is unchecked, or not decided in time, does not hold.
        """
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        r"""Whatever fails, or was not computed again."""
        bad = (Status.FAILS, Status.UNCHECKED, Status.UNDECIDED)
        return tuple(each for each in self.findings if each.status in bad)

    def to_json(self) -> dict[str, Any]:
        r"""``{"holds": ..., "findings": [...], "proof": ...}``."""
        findings = [
            {"where": each.where, "status": each.status.value, "reason": each.reason}
            for each in self.findings
        ]
        return {"holds": self.holds, "findings": findings, "proof": self.proof}

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


class Allowance:
    r"""How many values may still be listed: what anybody wrote must not keep its reader for ever.

    >>> allowance = Allowance(1000)
    >>> allowance.spend("a law", 600)
    >>> allowance.spend("a law", 600)  # listed once
    >>> allowance.spend("another", 600)
    Traceback (most recent call last):
    ...
    accounting.checker.laws.law.Unchecked: the claims need more than 1000 values in all
    """

    __slots__ = ("listed", "most")

    def __init__(self, most: int = 1 << 20) -> None:
        self.most = most
        self.listed: dict[object, int] = {}

    def spend(self, listing: object, values: int) -> None:
        r"""Counts a listing, once. Raises :class:`Unchecked` beyond what is allowed."""
        if listing in self.listed:
            return
        if sum(self.listed.values()) + values > self.most:
            raise Unchecked(f"the claims need more than {self.most} values in all")
        self.listed[listing] = values


class Document(Protocol):
    r"""Whatever can write itself as the JSON of a certificate."""

    def to_json(self) -> Mapping[str, Any]: ...


def verify(
    certificate: str | bytes | Mapping[str, Any] | Document, allowance: Allowance | None = None
) -> Verdict:
    r"""Check a certificate: its form, its digest, its assumptions, and every claim anew.

    Never raises for anything the text may hold: what is malformed is a finding. A verdict that
    holds says that the kernel proves every claim, where the certificate has evidence, and otherwise
    that a second computation agrees to the last digit stated; the digest is no signature, so it
    does not say who wrote the certificate. Claims beyond the ``allowance``, 2^20
    values of listings if none is given, are unchecked. All claims together have the time of the
    :func:`deadline` around, 60 seconds if there is none: what is beyond is not decided in time.
    """
    proofs: list[str] = []
    spent = Allowance() if allowance is None else allowance
    verdict = judged(_findings(certificate, spent, proofs))
    return replace(verdict, proof=proofs[0]) if proofs else verdict


def judged(findings: Iterator[Finding]) -> Verdict:
    r"""All that is found, in the time that is allowed; or the one place that cannot be read."""
    with bounded():
        try:
            return Verdict(findings=tuple(findings))
        except Malformed as error:
            found = Finding(where=error.where, status=Status.FAILS, reason=error.reason)
            return Verdict(findings=(found,))


def _findings(
    certificate: str | bytes | Mapping[str, Any] | Document,
    allowance: Allowance,
    proofs: list[str],
) -> Iterator[Finding]:
    if isinstance(certificate, (str, bytes)):
        document = parsed(certificate)
    elif isinstance(certificate, Mapping):
        document = certificate
    elif hasattr(certificate, "to_json"):
        document = certificate.to_json()
    else:
        raise Malformed("certificate", "must be text, an object, or a Certificate")
    if isinstance(document, Mapping) and "evidence" in document:
        proofs.append(KERNEL)
    found = read(document)
    for where, reason in found.complaints:
        yield Finding(where=where, status=Status.FAILS, reason=reason)
    for i, stated in enumerate(document["claims"]):
        finding = _finding(found, i, allowance)
        if finding.status is Status.HOLDS:
            said = f"{claim_in_words(stated)}, of {rounds_in_words(document['parts'])}"
            finding = replace(finding, reason=f"{said}: {finding.reason}")
        yield finding


def _finding(found: Read, index: int, allowance: Allowance) -> Finding:
    claim = found.claims[index]
    where = f"claims[{index}] ({claim.quantity})"
    try:
        tick()
        holds, reason = _decided(found, claim, allowance)
        status = Status.HOLDS if holds else Status.FAILS
    except OutOfTime as error:
        status, reason = Status.UNDECIDED, str(error)
    except (Unchecked, ArithmeticError, ValueError) as error:
        status, reason = Status.UNCHECKED, str(error) or type(error).__name__
    return Finding(where=where, status=status, reason=reason)


def _decided(found: Read, claim: Claim, allowance: Allowance) -> tuple[bool, str]:
    if found.plan is not None:
        return proven(found.parts, claim, found.plan, allowance.spend)
    # Here: the file that an auditor runs alone has the kernel, and no second path.
    from accounting.checker.curve import listings
    from accounting.checker.estimate import checked

    for listing, values in listings(found.parts, claim):
        allowance.spend(listing, values)
    return checked(found.parts, claim)
