r"""Decide every claim of a certificate with the integer kernel, and list the findings.

If the kernel can neither prove nor refute a claim, and the certificate has no evidence, the claim
is compared with a floating-point estimate, which is not a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NoReturn, Protocol

from accounting.certificates.canonical_text import claim_in_words, rounds_in_words
from accounting.certificates.certificate_format import Claim, Malformed, Read, parsed, read
from accounting.certificates.check_claim_with_kernel import proven
from accounting.certificates.deadline import OutOfTime, bounded, tick
from accounting.proof_kernel.law_tables import Refused

KERNEL: Final = "kernel"
ENGINE: Final = "engine"
ESTIMATE: Final = "estimate"
"""The basis of a decision: the integer kernel, the other code of dpcore, or an estimate."""
TEXT: Final = "text"
"""The basis of a finding that follows from the text alone, and decides no claim."""


class Status(Enum):
    r"""The outcome for a claim or an error; ASSUMED marks a guarantee stated without derivation."""

    HOLDS = "holds"
    FAILS = "fails"
    UNCHECKED = "unchecked"
    UNDECIDED = "not decided in time"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    r"""The outcome at the location ``where`` in a certificate, with its reason.

    ``basis`` is the method that decided the claim: :data:`KERNEL`, :data:`ENGINE`,
    :data:`ESTIMATE`, or :data:`TEXT` if the text alone gives the outcome.
    """

    where: str
    status: Status
    reason: str
    basis: str = KERNEL

    @property
    def estimated(self) -> bool:
        r"""Whether the claim was decided by an estimate, which is not a proof."""
        return self.basis == ESTIMATE

    def __str__(self) -> str:
        return f"{self.where}: {self.status.value}: {self.reason}"


def misfit(where: str, reason: str) -> Finding:
    r"""The finding that the text of a certificate has an error at ``where``."""
    return Finding(where=where, status=Status.FAILS, reason=reason, basis=TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    r"""All findings: one for each claim and one for each error in the text of the certificate.

    >>> verify("{}").holds
    False
    >>> print(verify("{}"))
    schema: fails: must be dpcore-certificate/1
    """

    findings: tuple[Finding, ...]

    @property
    def proof(self) -> str | None:
        r"""The weakest method that decided a claim: ``"estimate"``, ``"engine"`` or ``"kernel"``.

        It is None if no claim was decided.
        """
        known = (Status.HOLDS, Status.FAILS)
        found = {each.basis for each in self.findings if each.status in known}
        return next((each for each in (ESTIMATE, ENGINE, KERNEL) if each in found), None)

    @property
    def holds(self) -> bool:
        r"""Whether every claim holds under the assumptions, and the text has no error.

        Claims that are unchecked or not decided in time count as not holding.
        """
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        r"""The findings of claims that fail or were not decided, and of errors in the text."""
        bad = (Status.FAILS, Status.UNCHECKED, Status.UNDECIDED)
        return tuple(each for each in self.findings if each.status in bad)

    def to_json(self) -> dict[str, Any]:
        r"""The verdict as ``{"holds": ..., "findings": [...], "proof": ...}``."""
        findings = [
            {"where": each.where, "status": each.status.value, "reason": each.reason}
            for each in self.findings
        ]
        return {"holds": self.holds, "findings": findings, "proof": self.proof}

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __bool__(self) -> NoReturn:
        # Otherwise `assert verify(text)` would pass for every certificate.
        raise TypeError("a verdict has no truth value: use verdict.holds")


class _Exceeded(Refused): ...


class Allowance:
    r"""A limit on the work of verification, so that any certificate is checked in bounded time.

    The work is the number of values, such as probability masses, that the kernel computes. A list
    of values that several claims need counts once.

    >>> allowance = Allowance(1000)
    >>> allowance.spend("a law", 600)
    >>> allowance.spend("a law", 600)  # listed once
    >>> allowance.spend("another", 600)
    Traceback (most recent call last):
    ...
    accounting..._Exceeded: the claims need more values than the limit of 1000
    """

    __slots__ = ("listed", "most")

    def __init__(self, most: int = 1 << 20) -> None:
        self.most = most
        self.listed: dict[object, int] = {}

    def spend(self, listing: object, values: int) -> None:
        r"""Count ``values`` once for each ``listing``. Raises :class:`Refused` beyond the limit."""
        if listing in self.listed:
            return
        if sum(self.listed.values()) + values > self.most:
            raise _Exceeded(f"the claims need more values than the limit of {self.most}")
        self.listed[listing] = values


class Document(Protocol):
    r"""An object that can be written as the JSON of a certificate."""

    def to_json(self) -> Mapping[str, Any]: ...


def verify(
    certificate: str | bytes | Mapping[str, Any] | Document,
    allowance: Allowance | None = None,
    *,
    estimates: bool = True,
) -> Verdict:
    r"""Verify a certificate: its form, its digest, its assumptions, and every claim.

    A malformed certificate does not raise an exception; it gives a finding. The kernel tries to
    prove or refute each claim. If the kernel can do neither, if the certificate has no evidence,
    and if ``estimates`` is True, the claim is compared with a numerical estimate, which is not a
    proof. The estimate must determine the claim's last digit.

    ``allowance`` limits the number of values that the kernel computes for all claims together (2^20
    by default); claims beyond the limit are reported as unchecked. The time limit for all claims
    together is that of the enclosing :func:`deadline` (60 seconds by default). The digest is not a
    signature: it does not identify the author.
    """
    spent = Allowance() if allowance is None else allowance
    return judged(_findings(certificate, spent, estimates=estimates))


def judged(findings: Iterator[Finding]) -> Verdict:
    r"""Collect all ``findings`` within the time limit. A malformed text gives a single finding."""
    with bounded():
        try:
            return Verdict(findings=tuple(findings))
        except Malformed as error:
            return Verdict(findings=(misfit(error.where, error.reason),))


def _findings(
    certificate: str | bytes | Mapping[str, Any] | Document,
    allowance: Allowance,
    *,
    estimates: bool,
) -> Iterator[Finding]:
    if isinstance(certificate, (str, bytes)):
        document = parsed(certificate)
    elif isinstance(certificate, Mapping):
        document = dict(certificate)
    elif hasattr(certificate, "to_json"):
        document = certificate.to_json()
    else:
        raise Malformed("certificate", "must be text, a mapping, or a Certificate")
    found = read(document)
    for where, reason in found.complaints:
        yield misfit(where, reason)
    for claim, stated in zip(found.claims, document["claims"], strict=True):
        finding = _finding(found, claim, allowance, estimates=estimates)
        where = f"claims[{found.claims.index(claim)}] ({claim.quantity})"
        if finding.status is Status.HOLDS:
            statement = f"{claim_in_words(stated)}, of {rounds_in_words(document['parts'])}"
            finding = replace(finding, reason=f"{statement}: {finding.reason}")
        yield replace(finding, where=where)


def _finding(found: Read, claim: Claim, allowance: Allowance, *, estimates: bool) -> Finding:
    basis = KERNEL
    try:
        tick()
        try:
            holds, reason = proven(found, claim, allowance.spend)
        except Refused as error:
            if found.plan is not None or not estimates or isinstance(error, _Exceeded):
                raise
            # Imported here: the single-file kernel does not contain the estimates.
            from accounting.certificates.estimate import estimated as compared

            try:
                holds, reason = compared(found.parts, claim)
            except Refused as other:
                raise Refused(f"{error}; {other}") from None
            except (ArithmeticError, ValueError):
                extreme = "the numbers of the certificate are too extreme for an estimate"
                raise Refused(f"{error}; {extreme}") from None
            basis = ESTIMATE
        status = Status.HOLDS if holds else Status.FAILS
    except OutOfTime as error:
        status, reason = Status.UNDECIDED, str(error)
    except Refused as error:
        status, reason = Status.UNCHECKED, str(error)
    except (ArithmeticError, ValueError) as error:
        status = Status.UNCHECKED
        detail = str(error) or type(error).__name__
        reason = f"the numbers of the certificate are too extreme for the kernel ({detail})"
    return Finding(where="", status=status, reason=reason, basis=basis)
