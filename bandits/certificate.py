r"""The certificate of a run: what was played, with which exact parameters, and what it cost anyone.

A user may be in one of several releases that differ in the number of users, and so in noise; the
certificate lists them all and claims the worst. Each carries a certificate of its own
(docs/certificates.md), which the second path of ``accounting.verify`` computes anew; what is beyond
its reach says so. :func:`recheck` needs the text and nothing else. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Final, cast

from accounting.box import BinomialBox
from accounting.certificate import certify
from accounting.checker import Finding, Status, Verdict, verify
from accounting.checker.form import digest_of
from accounting.claim import Assumed
from accounting.compose import Composition, compose
from accounting.curve import PrivacyCurve
from accounting.errors import NotDerived
from bandits.play import OfAll, Run, RunGuarantee
from dpcore.binomial import Binomial
from dpcore.enclosure import End
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism
from dpcore.parameter import RationalLike, integer, rational, write_rational

__all__ = ["SCHEMA", "RunCertificate", "certificate_of", "recheck"]

SCHEMA: Final = "dpcore-bandit-certificate/1"

_DIGITS: Final = 8
_STEPS: Final = 100
_ALWAYS: Final = (
    "the server is semi-honest: it sees what the protocol shows it and follows the protocol",
    "rewards lie in [0, 1], and nobody's reward decides who takes part or when",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCertificate:
    r"""The certificate as data; :meth:`to_json` adds schema and digest.

    ``claims`` hold an upper bound of epsilon for each delta, the worst over ``parts``, which are
    all that may befall one user. ``released`` are the mechanisms that really ran, with how often.
    """

    algorithm: str
    arms: int
    horizon: int
    claims: tuple[Mapping[str, str], ...]
    parts: tuple[Mapping[str, Any], ...]
    released: tuple[Mapping[str, Any], ...]
    assumptions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        r"""The document, with its digest."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "algorithm": self.algorithm,
            "arms": self.arms,
            "horizon": self.horizon,
            "claims": [dict(claim) for claim in self.claims],
            "parts": [dict(part) for part in self.parts],
            "released": [dict(each) for each in self.released],
            "assumptions": [*self.assumptions],
        }
        return {**document, "digest": digest_of(document)}

    def text(self) -> str:
        r"""The document as a file would hold it."""
        return json.dumps(self.to_json(), indent=2) + "\n"


def certificate_of(
    run: Run, *, deltas: Iterable[RationalLike] = ("1e-6",), most_steps: int = _STEPS
) -> RunCertificate:
    r"""The certificate of ``run``: epsilon at each of ``deltas``, from its guarantee.

    Parts whose noise hides at most ``most_steps`` steps get a certificate of their own; for larger
    ones the second path takes long, and they say that they are unchecked.

    >>> import numpy as np
    >>> from bandits import BatchedElimination, Bernoulli, SumPrivatizer, play
    >>> private = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-4")
    >>> policy, world = BatchedElimination(privatizer=private), np.random.default_rng(1)
    >>> run = play(policy, Bernoulli(means=(0.9, 0.1)), horizon=1000, world=world)
    >>> certificate = certificate_of(run, deltas=["1e-6"])
    >>> certificate.claims[0]["epsilon"], recheck(certificate.text()).holds
    ('0.4999984', True)

    Raises :class:`NotDerived` for a run that promises nothing, can release nothing or has
    an infinite epsilon, and :class:`InvalidParameter` where a recorded release is none of those
    that the guarantee is of.
    """
    if not isinstance(run, Run):
        raise InvalidParameter("run", run, "must be a Run")
    most = integer("most_steps", most_steps, at_least=0)
    promised = run.guarantee
    if promised is None:
        raise NotDerived(f"a certificate of {run.policy}", "it protects nobody: nothing is claimed")
    if not promised.parts:
        raise NotDerived(f"a certificate of {run.policy}", "nothing is released before T")
    at = [rational("delta", delta) for delta in deltas]
    if not at:
        raise InvalidParameter("deltas", (), "must hold one or more")
    for delta in at:
        if not 0 < delta < 1:
            raise InvalidParameter("delta", write_rational(delta), "must lie in (0, 1)")
    parts = tuple(_part(part, at, most) for part in promised.parts)
    return RunCertificate(
        algorithm=run.policy,
        arms=len(run.pulls),
        horizon=run.horizon,
        claims=tuple(_worst(parts, delta) for delta in at),
        parts=parts,
        released=_released(run, promised),
        assumptions=tuple(dict.fromkeys((*_ALWAYS, *promised.assumptions, _users(promised)))),
    )


def _users(promised: RunGuarantee) -> str:
    if all(isinstance(part, Composition) for part in promised.parts):
        return "a user is in no more releases than the rounds of a part, and in each once"
    return "users are new: each takes part in one release at most"


# -- the parts --------------------------------------------------------------------------------


def _part(part: OfAll, deltas: list[Fraction], most: int) -> dict[str, Any]:
    found = RunGuarantee(parts=(part,), assumptions=())
    claims = []
    for delta in deltas:
        epsilon = found.epsilon(delta).upper
        if epsilon == math.inf:
            raise NotDerived(f"epsilon at delta = {write_rational(delta)}", f"of {part!r}")
        claims.append({"delta": write_rational(delta), "epsilon": _above(epsilon)})
    document: dict[str, Any] = {"is": _stated(part), "claims": claims}
    if _steps(part) > most:
        return {**document, "certificate": None, "unchecked": f"more than {most} steps"}
    try:
        own = certify(_certifiable(part), deltas=[claim["delta"] for claim in claims]).to_json()
    except NotDerived as error:
        return {**document, "certificate": None, "unchecked": str(error)}
    # Its digits may be fewer, and its bound that much above: then it is the one to claim.
    proved = _proved(own)
    claims = [{**c, "epsilon": max(c["epsilon"], proved[c["delta"]], key=Fraction)} for c in claims]
    return {**document, "claims": claims, "certificate": own, "unchecked": None}


def _proved(own: Any) -> dict[str, str]:
    # The upper end of epsilon at every delta of a certificate.
    return {c["delta"]: c["upper"] for c in own["claims"] if c["quantity"] == "epsilon"}


def _certifiable(part: OfAll) -> Any:
    match part:
        case BinomialBox(trials=trials, probability=p, bounds=(step,)):
            return PrivacyCurve(noise=Binomial(trials=trials, probability=p), sensitivity=step)
        case Assumed():
            return compose(part)
    return part


def _stated(part: OfAll) -> Any:
    match part:
        case BinomialBox():
            return _certifiable(part).to_json()
        case Composition():
            return {"rounds_of": part.to_json(), "unit": part.scope.unit.value}
    return part.to_json()


def _steps(part: OfAll) -> int:
    curves = [source for source, _ in part.parts] if isinstance(part, Composition) else [part]
    moved = [each.sensitivity for each in curves if isinstance(each, PrivacyCurve)]
    return max((cast(Any, s).amount if hasattr(s, "amount") else int(s) for s in moved), default=0)


def _above(value: End) -> str:
    # Eight digits, upwards.
    exact = Fraction(value)
    context = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    found = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return format(found.normalize(), "f")


def _worst(parts: tuple[Mapping[str, Any], ...], delta: Fraction) -> dict[str, str]:
    at = write_rational(delta)
    found = [c["epsilon"] for part in parts for c in part["claims"] if c["delta"] == at]
    return {"delta": at, "epsilon": max(found, key=Fraction)}


def _released(run: Run, promised: RunGuarantee) -> tuple[dict[str, Any], ...]:
    known = [_of_mechanism(part) for part in promised.parts]
    counts: Counter[Mechanism] = Counter(release.mechanism for release in run.releases)
    found = []
    for mechanism, times in counts.items():
        written = PrivacyCurve(noise=mechanism.noise, sensitivity=mechanism.sensitivity).to_json()
        stated = {"noise": written["noise"], "sensitivity": written["sensitivity"]}
        if stated not in known:
            raise InvalidParameter("releases", repr(mechanism), "is none that the run promised")
        found.append({**stated, "times": times})
    return tuple(found)


def _of_mechanism(part: OfAll) -> dict[str, Any]:
    written = _stated(part)
    if isinstance(part, Composition):
        written = written["rounds_of"][0]["part"]
    return {key: written[key] for key in ("noise", "sensitivity") if key in written}


# -- checked again ----------------------------------------------------------------------------


def recheck(text: str | bytes) -> Verdict:
    r"""Reads a certificate again: its digest, the worst over its parts, and each part's own.

    A part without a certificate of its own is unchecked, and then the verdict does not hold. As in
    ``accounting.verify`` nothing the text may hold raises, and a digest is no signature.
    """
    try:
        document = json.loads(text)
        findings = [*_findings(document)]
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        reason = f"is no {SCHEMA}: {type(error).__name__}: {error}"
        findings = [Finding(where="certificate", status=Status.FAILS, reason=reason)]
    return Verdict(findings=tuple(findings))


def _findings(document: Any) -> Iterable[Finding]:
    if document["schema"] != SCHEMA:
        raise ValueError("another schema")
    yield _finding("digest", document["digest"] == digest_of(document), "is that of the text")
    parts, claims = document["parts"], document["claims"]
    yield _finding("claims", bool(parts) and bool(claims), "there are some, of some parts")
    for i, claim in enumerate(claims):
        worst = _worst(tuple(parts), rational("delta", claim["delta"]))
        at_least = Fraction(claim["epsilon"]) >= Fraction(worst["epsilon"])
        yield _finding(f"claims[{i}]", at_least, "is no less than any part's")
    for i, part in enumerate(parts):
        yield from _of_part(f"parts[{i}]", part, [claim["delta"] for claim in claims])


def _of_part(where: str, part: Any, deltas: list[str]) -> Iterable[Finding]:
    stated = {claim["delta"]: Fraction(claim["epsilon"]) for claim in part["claims"]}
    yield _finding(where, set(stated) == set(deltas), "claims epsilon at every delta")
    own = part["certificate"]
    if own is None:
        reason = str(part["unchecked"])
        yield Finding(where=where, status=Status.UNCHECKED, reason=reason)
        return
    for finding in verify(own).findings:
        place = f"{where}.certificate.{finding.where}"
        yield Finding(where=place, status=finding.status, reason=finding.reason)
    proved = _proved(own)
    enough = all(at in proved and stated[at] >= Fraction(proved[at]) for at in stated)
    yield _finding(where, enough, "claims no less than its own certificate")
    yield _finding(where, _same(part["is"], own["parts"]), "is what its own certificate is of")


def _same(stated: Any, own: list[Any]) -> bool:
    # The noise and rounds, or the assumed claim, that the inner certificate speaks of.
    rounds = stated.get("rounds_of", [{"part": stated, "rounds": 1}])
    if len(rounds) != len(own):
        return False
    for each, written in zip(rounds, own, strict=True):
        part = each["part"].get("guarantee", each["part"])
        if each["rounds"] != written["rounds"]:
            return False
        for key in ("noise", "sensitivity", "epsilon"):
            mine, theirs = part.get(key), written.get(key)
            if _text(mine) != _text(theirs):
                return False
    return True


def _text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _text(each) for key, each in value.items()}
    return None if value is None else str(value)


def _finding(where: str, holds: bool, reason: str) -> Finding:  # noqa: FBT001  # a finding's status
    return Finding(where=where, status=Status.HOLDS if holds else Status.FAILS, reason=reason)
