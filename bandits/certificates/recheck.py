r"""Verify the certificate of a run: the envelope here, its parts as other certificates.

What a reader of the text can find out, and what not, is said at :func:`recheck`. The numbers of a
part are those of its own certificate, which ``accounting.certificates.worst`` computes anew.
Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from accounting.certificates.reading import Malformed, parsed
from accounting.certificates.verdict import Allowance, Finding, Status, Verdict, judged
from accounting.certificates.worst import check_certificates, stated_parts, worst_of
from bandits.certificates.form import SEEDED, UNKNOWN, knows, read

_MOST_TEXT: Final = 1 << 22
_MOST_VALUES: Final = 1 << 22


def recheck(text: str | bytes) -> Verdict:
    r"""Verify the certificate of a run from its text alone, whoever wrote it.

    Computed again: the digest; that epsilon is no less than that of any part; that the part's is no
    less than its own certificate proves, which is of this very noise, sensitivity, scope and
    rounds, and holds; that every release is of some part; that no assumption
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
    return judged(_findings(text))


def _findings(text: str | bytes) -> Iterator[Finding]:
    if not isinstance(text, (str, bytes)):
        raise Malformed("certificate", "must be text")
    form = read(parsed(text, _MOST_TEXT))
    check_certificates(form.parts)
    yield from stated_parts(form.parts)
    if not knows(form.algorithm):
        yield Finding(where="algorithm", status=Status.ASSUMED, reason=UNKNOWN)
    if form.simulated:
        yield Finding(where="noise", status=Status.ASSUMED, reason=SEEDED)
    for where, reason in form.complaints:
        yield Finding(where=where, status=Status.FAILS, reason=reason)
    yield from worst_of(form.claims, form.parts, Allowance(_MOST_VALUES))
