r"""A run's certificate read again: its form, and every number of it along a second path.

What a reader of the text can find out, and what not, is said at :func:`recheck`. The numbers of a
part are those of its own certificate, which ``accounting.verify`` computes anew.
Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from accounting.checker import Allowance, Finding, Malformed, Status, Verdict, verify
from accounting.checker.clock import bounded
from accounting.checker.text.fields import mapping, text_of
from accounting.checker.text.form import digest_of
from accounting.checker.text.reading import read as read_ordinary
from bandits.certificates.form import SEEDED, UNKNOWN, Form, Part, document_of, knows, read

__all__ = ["recheck"]

_MOST_VALUES: Final = 1 << 22


def recheck(text: str | bytes) -> Verdict:
    r"""What holds of a certificate that anybody may have written; it needs nothing but the text.

    Computed again: the digest; that epsilon is no less than that of any part; that the part's is no
    less than its own certificate proves, which is of this very noise, sensitivity, scope and
    rounds, and holds along the second path; that every release is of some part; that no assumption
    is missing that these fields imply. A part without a certificate is unchecked, and then the
    verdict does not hold. A claim that is stated and not derived, an algorithm that the reader does
    not know, and noise that came from a seed, are named first, as assumed. All parts together may
    take 2^22 values of listings; what is beyond is unchecked. They have the time of the
    ``deadline`` around, 60 seconds if there is none; what is beyond is not decided in time.

    Not to be known from a text: that the parts are all that a run of the algorithm could make,
    that the releases listed are those of the run, that the noise came from where it says, and who
    wrote it: a digest is no signature. The first three stand among the assumptions, which must be
    there word for word.

    >>> print(recheck("{}"))
    schema: fails: must be dpcore-bandit-certificate/1

    Nothing the text may hold raises.
    """
    with bounded():
        return _verdict(text)


def _verdict(text: str | bytes) -> Verdict:
    try:
        if not isinstance(text, (str, bytes)):
            raise Malformed("certificate", "must be text")
        document = mapping("certificate", document_of(text))
        form = read(document)
        told = text_of("digest", document.get("digest"))
        for i, part in enumerate(form.parts):
            _check_own(f"parts[{i}].certificate", part)
    except Malformed as error:
        found = Finding(where=error.where, status=Status.FAILS, reason=error.reason)
        return Verdict(findings=(found,))
    findings = [*_assumed(form)]
    findings += [_fails(where, reason) for where, reason in form.complaints]
    if told != digest_of(document):
        findings.append(_fails("digest", "is not that of the text: something was changed"))
    findings += _claims(form)
    allowance = Allowance(_MOST_VALUES)
    for i, part in enumerate(form.parts):
        findings += _of_part(f"parts[{i}]", part, allowance)
    return Verdict(findings=tuple(findings))


def _check_own(where: str, part: Part) -> None:
    if part.certificate is None:
        return
    try:
        read_ordinary(part.certificate)
    except Malformed as error:
        raise Malformed(f"{where}.{error.where}", error.reason) from None


def _assumed(form: Form) -> Iterator[Finding]:
    for i, part in enumerate(form.parts):
        if part.subject.kind == "assumed":
            stated = f"epsilon {part.subject.inner[0]['epsilon']} is stated, not derived"
            reason = f"{stated}: {part.subject.reason}"
            yield Finding(where=f"parts[{i}]", status=Status.ASSUMED, reason=reason)
    if not knows(form.algorithm):
        yield Finding(where="algorithm", status=Status.ASSUMED, reason=UNKNOWN)
    if form.simulated:
        yield Finding(where="noise", status=Status.ASSUMED, reason=SEEDED)


def _claims(form: Form) -> Iterator[Finding]:
    for i, (delta, epsilon) in enumerate(form.claims.items()):
        where = f"claims[{i}] (epsilon)"
        worst = max(part.claims[delta] for part in form.parts)
        if epsilon < worst:
            yield _fails(where, "is less than that of a part")
        else:
            reason = f"no less than any of {len(form.parts)} parts"
            yield Finding(where=where, status=Status.HOLDS, reason=reason)


def _of_part(where: str, part: Part, allowance: Allowance) -> Iterator[Finding]:
    own = part.certificate
    if own is None:
        yield Finding(where=where, status=Status.UNCHECKED, reason=part.unchecked)
        return
    found = [*_own(where, part, own, allowance)]
    yield from found
    if not found:
        reason = "epsilon computed again, of this very noise and rounds"
        if part.subject.kind == "assumed":
            reason = "epsilon follows from what is stated"
        yield Finding(where=where, status=Status.HOLDS, reason=reason)


def _own(where: str, part: Part, own: Any, allowance: Allowance) -> Iterator[Finding]:
    # What does not hold of a part that has a certificate of its own.
    subject = part.subject
    if own["scope"] != subject.scope or own["parts"] != [*subject.inner]:
        yield _fails(where, "is not what its own certificate is of")
    if subject.kind == "assumed" and subject.stated not in own["assumptions"]:
        yield _fails(where, f"its own certificate does not assume: {subject.stated}")
    proved = {c["delta"]: c["upper"] for c in own["claims"] if c["quantity"] == "epsilon"}
    for delta, epsilon in part.claims.items():
        if delta not in proved or epsilon < Fraction(proved[delta]):
            yield _fails(where, f"claims less at {delta} than its own certificate proves")
    for finding in verify(own, allowance).failures:
        place = f"{where}.certificate.{finding.where}"
        yield Finding(where=place, status=finding.status, reason=finding.reason)


def _fails(where: str, reason: str) -> Finding:
    return Finding(where=where, status=Status.FAILS, reason=reason)
