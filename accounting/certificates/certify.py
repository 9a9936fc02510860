r"""Write certificates: mechanisms and their guarantees, as text that can be verified independently.

:func:`certify` derives the claims from proven bounds. Without ``evidence``, the two decimals of a
claim enclose the true value, and are at most one unit of the last digit apart. The certificate is
checked with ``verify`` before it is returned. The format is described in docs/certificates.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.metadata import version
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from accounting.certificates.canonical_text import (
    SCHEMA,
    THEOREMS,
    ascii_text,
    digest_of,
    required_assumptions,
    with_decimals,
)
from accounting.certificates.certificate_format import (
    MOST_DECIMALS,
    Claim,
    Malformed,
    parsed,
    part_of,
    read,
)
from accounting.certificates.check_claim_with_kernel import ends_of, evidence_of, plan_of
from accounting.certificates.deadline import OutOfTime, bounded
from accounting.certificates.verify_certificate import Status, Verdict, verify
from accounting.derive_guarantee import guarantee
from accounting.descriptions.description import Description
from accounting.descriptions.sampling_schemes import Everyone, Poisson
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee, order_above_one
from accounting.guarantees.stated_guarantees import Approx, Pure, ZCdp
from accounting.privacy_curves.matrix_mechanism import MatrixCurve, MatrixMechanism
from accounting.privacy_curves.release_curve import PrivacyCurve, described
from accounting.proof_kernel.exact_values import exact_value
from accounting.proof_kernel.law_tables import Refused
from accounting.proof_kernel.worst_case_neighbours import Part, scenarios
from accounting.strategy_matrices import Banded, Toeplitz, Tree
from dpcore.cli.terminal import html_table
from dpcore.continual_sums import ContinualSum
from dpcore.errors import DpcoreError, InvalidParameter, PrecisionExhausted
from dpcore.mechanism import Mechanism, Release, Sensitivity
from dpcore.numbers.parameter import (
    RationalLike,
    at_least_zero,
    integer,
    rational_in,
    write_rational,
)

if TYPE_CHECKING:
    from accounting.composition.compose import Composition


_FEWEST_DIGITS: Final = 3
_MOST: Final = 30
_MARGIN: Final = Fraction(1, 16)
_NARROW: Final = Fraction(1, 1 << 64)
_CLOSE: Final = Fraction(1, 10**6)


class Disagreement(DpcoreError):
    r"""``verify`` contradicts a derived bound, so that no certificate is written."""


Subject: TypeAlias = Guarantee | Mechanism | ContinualSum | Sequence[Release]
"""The objects that can be certified."""

_Kinds: TypeAlias = Counter[tuple[Any, Fraction]]
# The number of rounds of each (part, fraction of its noise that honest parties added).


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    r"""A privacy certificate as data. :meth:`to_json` adds the schema and the digest.

    >>> from dpcore import DiscreteLaplace
    >>> mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
    >>> certificate = certify(mechanism, deltas=["1e-6"])
    >>> [claim["quantity"] for claim in certificate.claims]
    ['epsilon', 'pure']
    >>> verify(certificate).holds
    True
    """

    scope: Mapping[str, str]
    parts: tuple[Mapping[str, Any], ...]
    assumptions: tuple[str, ...]
    claims: tuple[Mapping[str, Any], ...]
    software: Mapping[str, str]
    evidence: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        r"""The certificate as a JSON document, with its schema and digest."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "scope": dict(self.scope),
            "parts": [dict(part) for part in self.parts],
            "assumptions": [*self.assumptions],
            "claims": [dict(claim) for claim in self.claims],
            "software": dict(self.software),
        }
        if self.evidence is not None:
            document["evidence"] = dict(self.evidence)
        return {**document, "digest": digest_of(document)}

    def _repr_html_(self) -> str:
        rows = [
            (claim["quantity"], ", ".join(f"{k} {v}" for k, v in claim.items() if k != "quantity"))
            for claim in self.claims
        ]
        return html_table("Certificate", [*rows, *(("assumes", a) for a in self.assumptions)])

    def text(self) -> str:
        r"""The certificate as the text of a JSON file."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str | bytes) -> Certificate:
        r"""Parse a certificate.

        The form, digest and assumptions are checked; claims are not verified.
        Raises :class:`InvalidParameter` with the location of the first error.
        """
        try:
            document = parsed(text)
            complaints = read(document).complaints
        except Malformed as error:
            raise InvalidParameter(error.where, "...", error.reason) from None
        if complaints:
            raise InvalidParameter(complaints[0][0], "...", complaints[0][1])
        return cls(
            scope=document["scope"],
            parts=tuple(document["parts"]),
            assumptions=tuple(document["assumptions"]),
            claims=tuple(document["claims"]),
            software=document["software"],
            evidence=document.get("evidence"),
        )


def certify(
    subject: Subject,
    *,
    deltas: Iterable[RationalLike] | RationalLike = ("1e-6",),
    epsilons: Iterable[RationalLike] | RationalLike = (),
    orders: Iterable[RationalLike] | RationalLike = (),
    digits: int = 8,
    evidence: bool = False,
) -> Certificate:
    r"""Write a certificate for a composition, mechanism, stream, curve, or list of releases.

    The certificate claims epsilon at each of ``deltas``, delta at each of ``epsilons``, the Renyi
    divergence at each of ``orders``, and the pure-DP and zCDP parameters if they are known exactly.
    Each claim has ``digits`` significant digits, or fewer (at least 3) if the bounds or ``verify``
    do not determine more. At delta = 0 epsilon is the largest loss, which must be finite.

    With ``evidence`` the claims are the bounds that the integer kernel proves, and the certificate
    contains the resolution of the kernel. The lower and the upper end of such a claim may differ by
    more than one unit of the last digit.

    For a list of releases, the guarantee is that of one participant. If all mechanisms are equal
    and all participants are listed, this is the participant of the most releases. If not, it is
    someone who takes part in all releases.

    Raises :class:`NotDerived` if only an upper bound is known, a value is infinite, or the
    certificate cannot be verified within the enclosing :func:`deadline` (60 seconds by default);
    :class:`Disagreement` if verification contradicts a claim.
    """
    most = integer("digits", digits, at_least=_FEWEST_DIGITS, at_most=_MOST)
    total, kinds = _read(subject)
    requests = [*_claim_requests(total, deltas, epsilons, orders)]
    for one, other in combinations(requests, 2):
        if (one.key, one.at) == (other.key, other.at):
            raise InvalidParameter(one.key, str(one.at), "must not be repeated")
    draft = _draft(total, kinds)
    with _named():
        # Parts that verify does not support are refused before the engines work on them.
        parts = tuple(part_of(f"parts[{i}]", part) for i, part in enumerate(draft.parts))
        if requests:
            scenarios(parts, above=True)
    exact = tuple(_exact_claims(parts))
    if not requests and not exact:
        raise InvalidParameter("deltas, epsilons, orders", (), "at least one must be given")
    if evidence:
        return _proven(draft, parts, requests, exact, most)
    counts = [most] * len(requests)
    with bounded():
        while True:
            enclosed = [each.claim(count) for each, count in zip(requests, counts, strict=True)]
            certificate = replace(draft, claims=(*enclosed, *exact))
            with _named():
                read(certificate.to_json())
            verdict = verify(certificate)
            if verdict.holds:
                return certificate
            _fewer(verdict, counts)


def _claim_requests(
    total: Composition | PrivacyCurve,
    deltas: Iterable[RationalLike] | RationalLike,
    epsilons: Iterable[RationalLike] | RationalLike,
    orders: Iterable[RationalLike] | RationalLike,
) -> Iterator[_ClaimRequest]:
    def narrow(ask: Callable[[Fraction, Fraction], Bound]) -> Callable[[Fraction, Fraction], Bound]:
        # By default a single curve is enclosed as narrowly as possible, at no extra cost.
        if not isinstance(total, PrivacyCurve):
            return ask
        return lambda at, relative: ask(at, min(relative, _NARROW))

    for delta in _several(deltas):
        at = rational_in("delta", delta, "[0, 1)")
        yield _ClaimRequest(quantity="epsilon", key="delta", at=at, bound=narrow(total.epsilon))
    for epsilon in _several(epsilons):
        at = at_least_zero("epsilon", epsilon)
        yield _ClaimRequest(quantity="delta", key="epsilon", at=at, bound=narrow(total.delta))
    for order in _several(orders):
        at = order_above_one(order)
        yield _ClaimRequest(quantity="renyi", key="order", at=at, bound=lambda a, _: total.renyi(a))


def _several(values: Iterable[RationalLike] | RationalLike) -> Iterable[RationalLike]:
    # A number is treated as a list of one; so is text, which is iterable.
    return values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)


@contextmanager
def _named(what: str = "a certificate for this composition") -> Iterator[None]:
    # Report an unsupported format, a kernel refusal or a timeout as NotDerived.
    try:
        yield
    except (Malformed, OutOfTime) as error:
        raise NotDerived(what, str(error)) from None
    except Refused as error:
        raise NotDerived(what, f"the kernel cannot check it: {error}") from None


def _proven(
    draft: Certificate,
    parts: tuple[Part, ...],
    requests: Sequence[_ClaimRequest],
    exact: Sequence[Mapping[str, Any]],
    digits: int,
) -> Certificate:
    # Each claim is the bound that the kernel proves; the engine's bound must overlap it.
    what = "a certificate for this composition with evidence"
    with bounded():
        with _named(what):
            found = [each.ends(_CLOSE) for each in requests]
            claims = [
                Claim(
                    quantity=each.quantity,
                    at=each.at,
                    lower=low,
                    upper=high,
                    unit=(high or 1) / 10**digits,
                )
                for each, (low, high) in zip(requests, found, strict=True)
            ]
            plan = plan_of(parts, claims)
            ends = [ends_of(parts, claim, plan) for claim in claims]
        for claim, (low, high) in zip(claims, ends, strict=True):
            if low > claim.upper or high < claim.lower:
                proven = f"the kernel proves [{float(low)}, {float(high)}]"
                raise Disagreement(f"{claim.quantity} at {claim.at}: {proven}")
        stated = [each.between(*both, digits) for each, both in zip(requests, ends, strict=True)]
        certificate = replace(draft, claims=(*stated, *exact), evidence=evidence_of(plan))
        with _named():
            read(certificate.to_json())
        for finding in verify(certificate).failures:
            raise NotDerived(what, str(finding))
    return certificate


def _fewer(verdict: Verdict, counts: list[int]) -> None:
    # Use one digit less for each undecided claim; any other failure is an error.
    for i, finding in enumerate(verdict.findings):
        if finding.status is Status.FAILS:
            raise Disagreement(str(finding))
        if finding.status is Status.UNDECIDED:
            raise NotDerived(f"a certificate for {finding.where}", finding.reason)
        if finding.status is Status.UNCHECKED:
            if i >= len(counts) or counts[i] <= _FEWEST_DIGITS:
                raise NotDerived(f"a certificate for {finding.where}", finding.reason)
            counts[i] -= 1


# -- what is certified -----------------------------------------------------------------------------


def _read(subject: Subject) -> tuple[Composition | PrivacyCurve, _Kinds]:
    match subject:
        case Mechanism() | ContinualSum():
            return _read(guarantee(subject))
        case PrivacyCurve():
            return subject, Counter({(subject, Fraction(1)): 1})
        case [*releases] if releases and all(isinstance(r, Release) for r in releases):
            return _of_run(releases)
        case [*_] | str() | bytes():
            raise InvalidParameter(
                "subject",
                subject,
                "must be a guarantee, a mechanism, a stream or a list of releases",
            )
        case Guarantee():
            from accounting.composition.compose import Composition, compose

            if not isinstance(subject, Composition):
                return _read(compose(subject))
    total = subject
    return total, Counter({(source, Fraction(1)): rounds for source, rounds in total.parts})


def _of_run(releases: Sequence[Release]) -> tuple[Composition | PrivacyCurve, _Kinds]:
    kinds = Counter((guarantee(each.mechanism), each.honest) for each in releases)
    batches = Counter(each.batch for each in releases)
    twice = next((batch for batch, count in batches.items() if count > 1), None)
    if twice is not None:
        raise InvalidParameter("batch", twice, "is released twice")
    if len(kinds) == 1 and all(each.participants for each in releases):
        visits = Counter(name for each in releases for name in each.participants)
        kinds = Counter(dict.fromkeys(kinds, max(visits.values())))
    if kinds.total() == 1:
        ((alone, _),) = kinds
        return _read(alone)[0], kinds
    from accounting.composition.compose import (
        compose,  # imported here: a single release needs no composition
    )

    return compose(*((curve, count) for (curve, _), count in kinds.items())), kinds


def _draft(total: Composition | PrivacyCurve, kinds: _Kinds) -> Certificate:
    # A certificate has no field for a group: the parts contain the sensitivity or the number of
    # members of the group, and an assumption states its size.
    scope, group = replace(total.scope, group=1).to_json(), total.scope.group
    grouped = (
        f"groups: at most {group} {scope['unit']}s differ; without sampling, a sensitivity or a "
        "stated claim is that of all of them together"
    )
    parts = tuple(_part(source, honest, rounds) for (source, honest), rounds in kinds.items())
    required = required_assumptions({"scope": scope, "parts": parts})
    whole = group > 1 and any("sampling" not in part for part in parts)
    stated = (*([grouped] if whole else []), *map(ascii_text, total.assumptions))
    return Certificate(
        scope=scope,
        parts=parts,
        assumptions=tuple(dict.fromkeys((*required, *stated))),
        claims=(),
        software={"name": "dpcore", "version": version("dpcore")},
    )


def _part(source: Any, honest: Fraction, rounds: int) -> dict[str, Any]:
    match source:
        case MatrixCurve():
            return {**_of_matrix(source.mechanism), "rounds": rounds}
        case Pure(attained=False) | Approx(attained=False):
            why = "a certificate needs a lower bound: use a stated Pure or Approx claim"
            raise NotDerived(f"a certificate for {source!r}", why)
        case Pure() | ZCdp() | Approx():
            written = source.to_json()
            return {**{k: v for k, v in written.items() if k != "scope"}, "rounds": rounds}
    description = described(source)
    if description is None or not isinstance(description.scheme, (Everyone, Poisson)):
        why = "verify supports only noise with full-batch or Poisson sampling"
        raise NotDerived(f"a certificate for {source!r}", why)
    everybody = description.scheme.everybody
    moved = description.unsampled.moved if everybody else description.sensitivity
    found = _part_of(description, moved, honest, rounds)
    if isinstance(description.scheme, Poisson) and not everybody:
        kind = "poisson-replaced" if description.replaced else "poisson"
        found["sampling"] = {"kind": kind, "rate": write_rational(description.scheme.rate)}
        if description.group > 1:
            found["sampling"] |= {"kind": "poisson-group", "members": description.group}
    return found


def _part_of(
    description: Description | MatrixMechanism,
    moved: Sensitivity | int,
    honest: Fraction,
    rounds: int,
) -> dict[str, Any]:
    return {
        "noise": {key: str(value) for key, value in description.noise.to_json().items()},
        "sensitivity": Sensitivity.of(moved).to_json(),
        "honest": write_rational(honest),
        "rounds": rounds,
    }


def _of_matrix(mechanism: MatrixMechanism) -> dict[str, Any]:
    run: dict[str, Any]
    match mechanism.strategy:
        case Tree():
            run = {"strategy": "tree"}
        case Banded(bands=bands, grid=0):
            run = {"strategy": "banded", "bands": bands}
        case Toeplitz(coefficients=given):
            exact = [write_rational(Fraction(each)) for each in given]
            run = {"strategy": "toeplitz", "coefficients": exact}
        case other:
            why = "verify supports only the strategies tree, toeplitz, and banded without a grid"
            raise NotDerived(f"a certificate for the strategy {other.written}", why)
    participation, rounds = mechanism.participation, mechanism.strategy.rounds
    most = {"most": min(participation.most, rounds), "apart": min(participation.apart, rounds)}
    found = _part_of(mechanism, mechanism.sensitivity, Fraction(1), rounds)
    return {**found, "correlated": {**run, "rounds": rounds, **most}}


# -- claims ----------------------------------------------------------------------------------------
# The true value lies at least 1/16 unit inside either end of a claim, so an estimate with a much
# smaller error distinguishes the stated pair of ends from every neighbouring pair.


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimRequest:
    quantity: str
    key: str
    at: Fraction
    bound: Callable[[Fraction, Fraction], Bound]

    def claim(self, digits: int) -> dict[str, Any]:
        # With fewer digits if the enclosure determines no more.
        for spare in (1, 2):
            try:
                lower, upper = self.ends(Fraction(1, 10 ** (digits + spare)))
            except PrecisionExhausted:
                if spare == 1:
                    raise
                break
            decimals = _decimals(upper, digits)
            cell = _cell(lower, upper, decimals)
            if cell is not None:
                return self._written(*cell, decimals)
        if digits > _FEWEST_DIGITS:
            return self.claim(digits - 1)
        reason = "its two bounds round to different decimals, so no digit can be certified"
        raise NotDerived(self._wanted, reason)

    def between(self, lower: Fraction, upper: Fraction, digits: int) -> dict[str, Any]:
        # The bounds are rounded outwards.
        decimals = _decimals(upper, digits)
        ends = math.floor(lower * 10**decimals), math.ceil(upper * 10**decimals)
        return self._written(*ends, decimals)

    def ends(self, relative: Fraction) -> tuple[Fraction, Fraction]:
        found = self.bound(self.at, relative)
        if found.lower is None:
            raise NotDerived(self._wanted, f"only an upper bound is known: {found.theorem}")
        if not isinstance(found.upper, Fraction) or not isinstance(found.lower, Fraction):
            why = "it is infinite, or not known to be finite; use a larger delta, or more noise"
            raise NotDerived(self._wanted, why)
        return found.lower, found.upper

    @property
    def _wanted(self) -> str:
        return f"{self.quantity} at {self.key} {self.at} in a certificate"

    def _written(self, lower: int, upper: int, decimals: int) -> dict[str, Any]:
        if decimals > MOST_DECIMALS:
            raise NotDerived(self._wanted, f"it is too small for {MOST_DECIMALS} decimals")
        return {
            "quantity": self.quantity,
            self.key: write_rational(self.at),
            "lower": with_decimals(lower, decimals),
            "upper": with_decimals(upper, decimals),
            "digits": decimals,
            "theorem": THEOREMS[self.quantity],
        }


def _decimals(value: Fraction, digits: int) -> int:
    # The digits after the decimal point for this many significant digits; 0 for a large value.
    if value <= 0:
        return digits
    size = math.floor((math.log2(value.numerator) - math.log2(value.denominator)) / math.log2(10))
    return max(digits - 1 - size, 0)


def _cell(lower: Fraction, upper: Fraction, decimals: int) -> tuple[int, int] | None:
    # The cell of the decimal grid that contains the enclosure with a margin around it; a single
    # point if the value is exactly a decimal.
    low, high = lower * 10**decimals, upper * 10**decimals
    if low == high and low.denominator == 1:
        return int(low), int(low)
    cell = math.floor(low - _MARGIN)
    return (cell, cell + 1) if cell == math.floor(high + _MARGIN) else None


def _exact_claims(parts: tuple[Part, ...]) -> Iterator[dict[str, Any]]:
    for quantity, key in (("pure", "epsilon"), ("zcdp", "rho")):
        with suppress(Refused):
            value = write_rational(exact_value(parts, quantity, Fraction(0)))
            yield {"quantity": quantity, key: value, "theorem": THEOREMS[quantity]}
