r"""Every claim of a certificate, computed again, and what is found.

A claim [lower, upper] is one unit of its last digit wide and the truth lies at least a sixteenth of
a unit inside. So the second path must place it more than 1/32 of a unit inside either end, with an
error below 1/64: a claim moved by one unit fails, and no claim passes that this path cannot decide.
A claim of two equal ends is one of a rational, and is compared with that rational.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Protocol

from accounting.checker.clock import OutOfTime, bounded, tick
from accounting.checker.curve import allowed, largest, largest_loss, listings, worst_deltas
from accounting.checker.exact import exact_pure, exact_value, exact_zcdp
from accounting.checker.laws.losses import randomised_response, renyi_of, renyi_of_listed
from accounting.checker.laws.masses import REAL, Unchecked, real
from accounting.checker.laws.value import Value, Wanted
from accounting.checker.rounds import Rounds, alternatives
from accounting.checker.text.reading import Claim, Malformed, Part, Read, parsed, read
from accounting.checker.text.words import claim_in_words, rounds_in_words

__all__ = ["Allowance", "Finding", "Status", "Verdict", "judged", "verify"]

_INSIDE: Final = Fraction(1, 32)
_ERROR: Final = Fraction(1, 64)


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
    r"""What the second path found, a line a claim and a line a fault of the text.

    >>> verify("{}").holds
    False
    >>> print(verify("{}"))
    schema: fails: must be dpcore-certificate/1
    """

    findings: tuple[Finding, ...]

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
        r"""``{"holds": ..., "findings": [...]}``."""
        findings = [
            {"where": each.where, "status": each.status.value, "reason": each.reason}
            for each in self.findings
        ]
        return {"holds": self.holds, "findings": findings}

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
    accounting.checker.laws.masses.Unchecked: the claims need more than 1000 values in all
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
    holds says that a second computation agrees to the last digit stated; the digest is no
    signature, so it does not say who wrote the certificate. Claims beyond the ``allowance``, 2^20
    values of listings if none is given, are unchecked. All claims together have the time of the
    :func:`deadline` around, 60 seconds if there is none: what is beyond is not decided in time.
    """
    return judged(_findings(certificate, Allowance() if allowance is None else allowance))


def judged(findings: Iterator[Finding]) -> Verdict:
    r"""All that is found, in the time that is allowed; or the one place that cannot be read."""
    with bounded():
        try:
            return Verdict(findings=tuple(findings))
        except Malformed as error:
            found = Finding(where=error.where, status=Status.FAILS, reason=error.reason)
            return Verdict(findings=(found,))


def _findings(
    certificate: str | bytes | Mapping[str, Any] | Document, allowance: Allowance
) -> Iterator[Finding]:
    if isinstance(certificate, (str, bytes)):
        document = parsed(certificate)
    elif isinstance(certificate, Mapping):
        document = certificate
    elif hasattr(certificate, "to_json"):
        document = certificate.to_json()
    else:
        raise Malformed("certificate", "must be text, an object, or a Certificate")
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
        for listing, values in listings(found.parts, claim):
            allowance.spend(listing, values)
        holds, reason = _checked(found.parts, claim)
        status = Status.HOLDS if holds else Status.FAILS
    except OutOfTime as error:
        status, reason = Status.UNDECIDED, str(error)
    except (Unchecked, ArithmeticError, ValueError) as error:
        status, reason = Status.UNCHECKED, str(error) or type(error).__name__
    return Finding(where=where, status=status, reason=reason)


@lru_cache(maxsize=128)
def _checked(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    match claim.quantity:
        case "pure":
            return _equal(claim.at, exact_pure(parts))
        case "zcdp":
            return _equal(claim.at, exact_zcdp(parts))
    exact = exact_value(parts, claim)
    if exact is not None:
        return _inside_exactly(claim, exact)
    match claim.quantity:
        case "renyi":
            return _renyi(parts, claim)
        case "delta":
            return _delta(parts, claim)
    return _epsilon(parts, claim)


def _equal(claimed: Fraction, found: Fraction) -> tuple[bool, str]:
    if claimed == found:
        return True, "equal, exactly"
    return False, f"the second path finds {found}"


def _inside_exactly(claim: Claim, found: Fraction) -> tuple[bool, str]:
    if claim.lower == claim.upper:
        return _equal(claim.lower, found)
    margin = _INSIDE * claim.unit
    holds = claim.lower + margin < found < claim.upper - margin
    return holds, f"the second path finds {REAL.nstr(real(found), 20)}, a rational"


# -- enclosed claims -------------------------------------------------------------------------------


def _delta(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    size = max(claim.lower, claim.unit)
    wanted = Wanted(relative=float(claim.unit * _ERROR / size))
    return _inside(claim, worst_deltas(parts, [claim.at], allowed(claim), wanted)[0])


def _renyi(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    found = []
    for rounds in alternatives(parts):
        ones = [(each.count, _renyi_of_one(each, claim.at)) for each in rounds]
        value = REAL.fsum(count * one.value for count, one in ones)
        found.append(Value(value=value, error=REAL.fsum(k * one.error for k, one in ones)))
    return _inside(claim, largest(found))


def _renyi_of_one(each: Rounds, order: Fraction) -> Value:
    if each.density is not None or each.rate < 1:
        raise Unchecked("a Renyi divergence of a sample, or of noise on the reals")
    if each.law is not None:
        return renyi_of(each.law, each.step, order)
    epsilon, lost = each.stated
    if lost:
        raise Unchecked("a Renyi divergence of an approximate claim")
    return renyi_of_listed(randomised_response(epsilon, lost), order)[0]


def _inside(claim: Claim, found: Value) -> tuple[bool, str]:
    unit = real(claim.unit)
    shown = f"the second path finds {REAL.nstr(found.value, 20)}"
    if not REAL.isfinite(found.value):
        return False, shown
    if claim.lower == claim.upper:
        # A computation with an error tells only that they are not met.
        if abs(found.value - real(claim.lower)) > found.error:
            return False, shown
        raise Unchecked(f"{shown}, and no rational: two equal ends are not checked")
    if found.error > real(_ERROR) * unit:
        raise Unchecked(f"{shown} with error {REAL.nstr(found.error, 3)}")
    low, high = (real(end) for end in (claim.lower, claim.upper))
    margin = real(_INSIDE) * unit
    return bool(low + margin < found.value < high - margin), shown


def _epsilon(parts: tuple[Part, ...], claim: Claim) -> tuple[bool, str]:
    # delta(epsilon) falls: it must exceed the target just inside the lower end, and stay below it
    # just inside the upper end.
    if claim.at == 0:
        return _inside(claim, largest([largest_loss(each) for each in alternatives(parts)]))
    target, goal = real(claim.at), Wanted(of_epsilon=float(claim.unit * _ERROR))
    room = allowed(claim)
    if claim.lower == claim.upper:
        if claim.lower:
            return False, "no epsilon but 0 is exact"
        (most,) = worst_deltas(parts, [Fraction(0)], room, goal)
        shown = f"delta(0) is {REAL.nstr(most.value, 20)}"
        if abs(most.value - target) <= most.error:
            raise Unchecked(f"{shown} with error {REAL.nstr(most.error, 3)}: too near the target")
        return bool(most.value < target), shown
    ends = [claim.lower + _INSIDE * claim.unit, claim.upper - _INSIDE * claim.unit]
    left, right = worst_deltas(parts, ends, room, goal)
    for each in (left, right):
        if abs(each.value - target) <= each.error:
            raise Unchecked(
                f"delta at an end is {REAL.nstr(each.value, 20)} with error "
                f"{REAL.nstr(each.error, 3)}: too near the target"
            )
    holds = bool(left.value > target > right.value)
    return holds, (
        f"just inside the bounds delta is {REAL.nstr(left.value, 16)} and "
        f"{REAL.nstr(right.value, 16)}; the claimed delta {'lies' if holds else 'must lie'} between"
    )
