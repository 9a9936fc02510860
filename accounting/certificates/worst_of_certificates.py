r"""Check an epsilon for a user who takes part in one of several possible ways.

A document lists the ways, called its parts. Each part states the releases in which the user takes
part, and their epsilon at each delta, with a certificate, which ``verify`` checks, or with the
reason why the part has no certificate. The user has the guarantee of the worst part. The caller
parses the document and makes a :class:`WorstPart` of each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from accounting.certificates.canonical_text import decimal_of, rounds_in_words
from accounting.certificates.certificate_format import Malformed, read
from accounting.certificates.deadline import OutOfTime, tick
from accounting.certificates.verify_certificate import (
    ENGINE,
    ESTIMATE,
    KERNEL,
    TEXT,
    Allowance,
    Finding,
    Status,
    Verdict,
    misfit,
    verify,
)
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import ZCdp
from accounting.protocol_guarantees.pure_shuffle_guarantee import purity
from dpcore.errors import DpcoreError
from dpcore.protocols.shuffled_bits import PureShuffle

_MOST_BITS: Final = 1280
_FARTHEST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPart:
    r"""One possible participation of a user: its releases, epsilons, and certificate, if any.

    ``scope`` and ``inner`` are the fields ``scope`` and ``parts`` that the certificate must
    contain. ``claims`` maps each delta to the stated epsilon. ``unchecked`` says why a part has no
    certificate. If the epsilon is assumed rather than derived, ``reason`` says why, and
    ``assumption`` is the sentence that the certificate must contain; otherwise both are empty. If
    the part is one run of the protocol ``shuffle`` with ``honest`` honest users, the certificate
    contains only an epsilon, which :func:`purity` recomputes.
    """

    scope: Mapping[str, str]
    inner: tuple[Mapping[str, Any], ...]
    claims: Mapping[str, Fraction]
    certificate: Mapping[str, Any] | None
    unchecked: str
    reason: str = ""
    assumption: str = ""
    shuffle: PureShuffle | None = None
    honest: int = 0


def check_certificates(parts: Sequence[WorstPart]) -> None:
    r"""Parse all certificates of ``parts``. Raises :class:`Malformed` if any of them is invalid."""
    for i, part in enumerate(parts):
        try:
            if part.certificate is not None:
                read(part.certificate)
        except Malformed as error:
            raise Malformed(f"parts[{i}].certificate.{error.where}", error.reason) from None


def stated_parts(parts: Sequence[WorstPart]) -> Iterator[Finding]:
    r"""Yield a finding with the status ASSUMED for each part whose epsilon is not derived."""
    for i, part in enumerate(parts):
        if part.reason:
            stated = f"epsilon {part.inner[0]['epsilon']} is stated, not derived"
            reason = f"{stated}: {part.reason}"
            yield Finding(where=f"parts[{i}]", status=Status.ASSUMED, reason=reason)


def worst_of(
    claims: Mapping[str, Fraction], parts: Sequence[WorstPart], allowance: Allowance
) -> Iterator[Finding]:
    r"""Check that each epsilon in ``claims`` is at least that of every part, and check every part.

    ``claims`` maps a delta to an epsilon. Yields all findings.
    """
    for i, (delta, epsilon) in enumerate(claims.items()):
        where = f"claims[{i}] (epsilon)"
        if epsilon < max(part.claims[delta] for part in parts):
            yield misfit(where, "is less than the epsilon of a part")
        else:
            stated = f"epsilon <= {decimal_of(epsilon)} at delta {delta}"
            reason = f"{stated}: at least the epsilon of every part"
            yield Finding(where=where, status=Status.HOLDS, reason=reason, basis=TEXT)
    for i, part in enumerate(parts):
        yield from _of_part(f"parts[{i}]", part, allowance)


def _of_part(where: str, part: WorstPart, allowance: Allowance) -> Iterator[Finding]:
    if part.certificate is None:
        yield Finding(where=where, status=Status.UNCHECKED, reason=part.unchecked)
        return
    verdict = verify(part.certificate, allowance)
    found = [*_wrong(where, part, part.certificate, verdict)]
    yield from found
    if not found:
        again = "recomputed" if part.shuffle is None else "derived again by the same engine"
        how = "implied by the stated claim" if part.reason else again
        stated = ", ".join(f"<= {decimal_of(e)} at delta {d}" for d, e in part.claims.items())
        what = rounds_in_words(part.inner) if part.shuffle is None else _words(part)
        reason = f"epsilon {stated}, of {what}: {how}"
        by_kernel = part.shuffle is None and all(
            _stated(part.certificate, delta, epsilon) for delta, epsilon in part.claims.items()
        )
        basis = ESTIMATE if verdict.proof == ESTIMATE else KERNEL if by_kernel else ENGINE
        yield Finding(where=where, status=Status.HOLDS, reason=reason, basis=basis)


def _wrong(
    where: str, part: WorstPart, own: Mapping[str, Any], verdict: Verdict
) -> Iterator[Finding]:
    # The contradictions between a part and its own certificate.
    if own["scope"] != part.scope or own["parts"] != [*part.inner]:
        yield misfit(where, "differs from the content of its own certificate")
    if part.assumption and part.assumption not in own["assumptions"]:
        yield misfit(where, f"its own certificate does not assume: {part.assumption}")
    rhos = [Fraction(c["rho"]) for c in own["claims"] if c["quantity"] == "zcdp"]
    for delta, epsilon in part.claims.items():
        if not _stated(own, delta, epsilon) and not any(
            zcdp_keeps(rho, epsilon, Fraction(delta)) for rho in rhos
        ):
            yield misfit(where, f"claims a smaller epsilon at {delta} than its certificate proves")
    if part.shuffle is not None:
        yield from _of_shuffle(where, part, part.shuffle)
    for finding in verdict.failures:
        place = f"{where}.certificate.{finding.where}"
        yield replace(finding, where=place)


def _stated(own: Mapping[str, Any], delta: str, epsilon: Fraction) -> bool:
    # Whether ``epsilon`` is at least one that a claim of the certificate states at ``delta``, or at
    # every delta.
    stated = (
        c["epsilon" if c["quantity"] == "pure" else "upper"]
        for c in own["claims"]
        if c["quantity"] == "pure" or (c["quantity"] == "epsilon" and c["delta"] == delta)
    )
    return any(epsilon >= Fraction(each) for each in stated)


def zcdp_keeps(rho: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    r"""Whether rho-zCDP implies (epsilon, delta)-DP by the conversion at the best Renyi order."""
    return epsilon > rho and bool(delta) and ZCdp(rho).epsilon(delta).upper <= epsilon


def _of_shuffle(where: str, part: WorstPart, shuffle: PureShuffle) -> Iterator[Finding]:
    epsilon = Fraction(part.inner[0]["epsilon"])
    scale = shuffle.share.scale
    if shuffle.width > _MOST_BITS or not shuffle.reach / _FARTHEST <= scale <= _MOST_BITS:
        reason = (
            f"needs at most {_MOST_BITS} message bits (it has {shuffle.width}), and a scale in "
            f"[reach/{_FARTHEST}, {_MOST_BITS}]"
        )
        yield Finding(where=where, status=Status.UNCHECKED, reason=reason)
        return
    try:
        tick()
        least = Fraction(purity(shuffle, part.honest).stated_epsilon)
    except (NotDerived, DpcoreError) as error:
        yield Finding(where=where, status=Status.UNCHECKED, reason=str(error))
    except OutOfTime as error:
        yield Finding(where=where, status=Status.UNDECIDED, reason=str(error))
    else:
        if epsilon < least:
            problem = f"epsilon {decimal_of(epsilon)} is too small for {_words(part)}"
            reason = f"{problem}: the derived epsilon is {decimal_of(least)}"
            yield Finding(where=where, status=Status.FAILS, reason=reason, basis=ENGINE)


def _words(part: WorstPart) -> str:
    bits = 0 if part.shuffle is None else part.shuffle.width
    return f"{part.honest:,} honest users of a shuffle, {bits} bits each"
