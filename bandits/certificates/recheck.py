r"""Verify the certificate of a run: its fields, and the certificate of each of its parts.

A part of the certificate describes one possible participation of a user
(``bandits.certificates.certify_run``). The epsilons of a part come from its own certificate, which
``accounting.certificates.worst_of_certificates`` recomputes. :func:`recheck` documents what can and
cannot be checked from the text alone. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Final, cast

from accounting.certificates.canonical_text import ascii_text, digest_of
from accounting.certificates.certificate_format import (
    Malformed,
    exactly,
    items,
    mapping,
    parsed,
    part_of,
    rational,
    scope_of,
    text_of,
    whole,
)
from accounting.certificates.verify_certificate import (
    Allowance,
    Finding,
    Status,
    Verdict,
    judged,
    misfit,
)
from accounting.certificates.worst_of_certificates import (
    WorstPart,
    check_certificates,
    stated_parts,
    worst_of,
)
from accounting.composition.compose import compose
from accounting.guarantees.stated_guarantees import Assumed, Pure
from bandits.policies.combinatorial_ucb import FAMILY
from bandits.policies.registry import LINEAR
from bandits.policies.successive_elimination import NAMES
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer, Trust
from bandits.privatizers.continual_sums_per_arm import StreamPrivatizer, StreamTrust
from bandits.privatizers.deployment import ALL_HONEST, BITS_ONLY, SOME_HONEST, SUM_ONLY, TRUSTED
from bandits.privatizers.run_guarantee import NEW, POOLED
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages
from dpcore.errors import InvalidParameter
from dpcore.laws.polya import PolyaDifference
from dpcore.mechanism import Scope
from dpcore.protocols.shuffled_bits import PureShuffle

_MOST_TEXT: Final = 1 << 22
_MOST_VALUES: Final = 1 << 22


def recheck(text: str | bytes) -> Verdict:
    r"""Verify the certificate of a run from untrusted text.

    The function checks

    - the digest;
    - that the claimed epsilon is at least the epsilon of each part, at each delta;
    - that the certificate of each part holds, is for the noise, sensitivity, scope and number of
      rounds of this part, and proves an epsilon that is at most the epsilon of the part;
    - that each release belongs to a part;
    - that all assumptions implied by these fields are present.

    The verdict does not hold if a part has no certificate, because this part is unchecked. Assumed
    guarantees, an unknown algorithm, and noise drawn from a seed are listed first and marked as
    assumed. Recomputing all parts together may enumerate at most 2^22 values; parts beyond this
    limit are unchecked. The check must finish within the enclosing ``deadline``, by default 60
    seconds.

    Some facts cannot be verified from the text, so the text must list them as assumptions:

    - that its parts cover every possible participation of a user;
    - that the listed releases are those of the run;
    - that the noise has the stated source;
    - that the noise of a part remains after the stated dropouts.

    The digest is not a signature, so the author is not verified.

    >>> print(recheck("{}"))
    schema: fails: must be dpcore-bandit-certificate/1

    Invalid text does not raise an error; the verdict then does not hold.
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
        yield misfit(where, reason)
    yield from worst_of(form.claims, form.parts, Allowance(_MOST_VALUES))


SCHEMA: Final = "dpcore-bandit-certificate/1"
SYSTEM: Final = "the run drew its noise from the operating system"
SEEDED: Final = (
    "noise comes from the operating system; the noise of this simulated run came from a seed and "
    "protects no user"
)
UNKNOWN: Final = "trust: unknown algorithm, the reader cannot tell who sees what"

_SHUFFLE: Final = "pure-shuffle"
_MOST_PARTS: Final = 1024
_FIELDS: Final = frozenset(
    {"schema", "algorithm", "arms", "horizon", "claims", "parts", "released", "assumptions"}
)
_DECIMAL: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
_ALWAYS: Final = (
    "noise: every draw is fresh, independent and exactly of the law stated",
    "the server is semi-honest: it sees what the protocol shows it and follows the protocol",
    "rewards lie in [0, 1], and no user's reward determines who takes part or when",
)
_OF_AVERAGES: Final = (
    *_ALWAYS[:2],
    "clients clip their averages, and no user's reward determines who takes part or when",
)
_CALIBRATED: Final = "a release of another size would have been calibrated to the same claim"
_RETURNING: Final = (
    "a user takes part in at most as many releases as a part has rounds, once in each at most"
)
_PLANNED: Final = re.compile(
    f"{SOME_HONEST}([0-9]+(?:/[1-9][0-9]*)?) drop out, and ([0-9]+(?:/[1-9][0-9]*)?) break the "
    "protocol or reveal their noise"
)
_LOCAL: Final = "each user alone adds all the noise of the part"
_COVERED: Final = ", which cover every participation of a user in "
_RECORDED: Final = " in total, as recorded by the run"
_BY_AUTHOR: Final = "; stated by the author of the certificate"
_EARLIER: Final = (
    (", all that may befall a user of ", _COVERED),
    (" in all, as the run recorded them", _RECORDED),
    ("; so says whoever wrote this", _BY_AUTHOR),
    ("nobody's reward decides who", "no user's reward determines who"),
    ("the aggregation shows the server the sum and who is in it only", SUM_ONLY),
    ("the shuffler shows the server the bits only", BITS_ONLY),
    ("the analyzer is trusted with the sum and publishes its estimate only", TRUSTED),
    (" vanish, and ", " drop out, and "),
    (" tell their noise", " reveal their noise"),
    ("each user adds the noise of the part alone", _LOCAL),
    ("a user is in no more releases than the rounds of a part, and in each once", _RETURNING),
    ("in the simulated run of this certificate it came", "the noise of this simulated run came"),
    ("a seed, and protects nobody", "a seed and protects no user"),
)
r"""Fragments of sentences in the certificates of earlier versions, with their present wording."""

_UNPROTECTED: Final = NAMES["none"]
_TRUST: Final[Mapping[str, str]] = {
    **{
        f"{algorithm}{how}": trust
        for trust, algorithm in NAMES.items()
        if trust != "none"
        for how in ("", "-in-parts")
    },
    "dp-se": "central",
    "sdp-ae": "binary-shuffle",
    "vb-sdp-ae": "binary-shuffle",
}
_AVERAGES: Final = {name: trust for name, (_, trust, _) in LINEAR.items() if trust != "none"}
_STREAMS: Final[Mapping[str, StreamTrust]] = {
    name: trust for name, (trust, _) in FAMILY.items() if trust != "none"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateForm:
    r"""The parsed fields of a certificate, and complaints about its assumptions and digest."""

    claims: Mapping[str, Fraction]
    parts: tuple[WorstPart, ...]
    algorithm: str
    simulated: bool
    complaints: tuple[tuple[str, str], ...]


def read(document: object) -> CertificateForm:
    r"""Parse a certificate, recomputing no bound; raise ``Malformed`` for an invalid field."""
    top = mapping("certificate", document)
    if top.get("schema") != SCHEMA:
        raise Malformed("schema", f"must be {SCHEMA}")
    exactly("certificate", top, _FIELDS | {"digest"})
    algorithm = _algorithm(top["algorithm"])
    arms = whole("arms", top["arms"], 1, 10**9)
    horizon = whole("horizon", top["horizon"], arms, 10**19)
    claims = _claims("claims", top["claims"])
    listed = items("parts", top["parts"], most=_MOST_PARTS)
    parts = tuple(_part(f"parts[{i}]", part, claims) for i, part in enumerate(listed))
    if len({"rounds_of" in part["is"] for part in listed}) > 1:
        raise Malformed("parts", "must all be releases, or all be rounds of releases")
    if len({(part.scope["unit"], part.scope["relation"]) for part in parts}) > 1:
        raise Malformed(
            "parts", "must all have one scope: guarantees of different scopes do not compose"
        )
    if len({_text_of_subject(part) for part in parts}) < len(parts):
        raise Malformed("parts", "must not repeat a part")
    _check_released(top["released"], parts, horizon)
    assumptions = [_line("assumptions", each) for each in items("assumptions", top["assumptions"])]
    if len(set(assumptions)) < len(assumptions):
        raise Malformed("assumptions", "must not repeat an assumption")
    assumptions = [*assumptions, *map(_in_words_of_today, assumptions)]
    return CertificateForm(
        claims=claims,
        parts=parts,
        algorithm=algorithm,
        simulated=SEEDED in assumptions,
        complaints=tuple(_complaints(top, assumptions)),
    )


def _in_words_of_today(sentence: str) -> str:
    return reduce(lambda text, words: text.replace(*words), _EARLIER, sentence)


def knows(algorithm: str) -> bool:
    r"""Whether dpcore knows what the server and the users see in a run of ``algorithm``."""
    return any(algorithm in known for known in (_TRUST, _AVERAGES, _STREAMS))


def required_assumptions(document: Mapping[str, Any]) -> tuple[str, ...]:
    r"""The assumptions that the certificate ``document`` must list besides the noise source.

    They include that the parts cover every possible participation of a user, and that the releases
    are those of the run.
    """
    parts, name = document["parts"], document["algorithm"]
    run = f"{name} with {document['arms']} arms in {document['horizon']} rounds"
    returning = all("rounds_of" in part["is"] for part in parts)
    reasons = (part["is"]["reason"] for part in parts if "reason" in part["is"])
    shuffled = any(part["is"].get("claim") == _SHUFFLE for part in parts)
    times = sum(each["times"] for each in document["released"])
    # With a plan for dropouts the assumption about the users is weaker.
    plans = filter(None, (_PLANNED.fullmatch(str(each)) for each in document["assumptions"]))
    planned = any(sum(map(Fraction, plan.groups())) < 1 for plan in plans)
    found = (
        *(_OF_AVERAGES if name in _AVERAGES else _ALWAYS),
        f"parts: {len(parts)}{_COVERED}{run}{_BY_AUTHOR}",
        f"released: {times}{_RECORDED}{_BY_AUTHOR}",
        *_of_algorithm(name),
        *((BITS_ONLY,) if shuffled else ()),
        *reasons,
        *((POOLED, _RETURNING) if returning else (NEW,)),
    )
    return tuple(each for each in dict.fromkeys(found) if not (planned and each == ALL_HONEST))


def _of_algorithm(name: str) -> tuple[str, ...]:
    # The assumptions of a known algorithm's trust model, except those that contain numbers.
    if name in _AVERAGES:
        privatizer = AveragePrivatizer(trust=_AVERAGES[name])
        return (*privatizer.assumed(Averages(users=1, coordinates=1)), _CALIBRATED)
    if name in _STREAMS:
        return StreamPrivatizer(trust=_STREAMS[name], sent=1, horizon=1).assumed()
    trust = _TRUST.get(name)
    if trust is None:
        return (UNKNOWN,)
    if trust == "binary-shuffle":
        return BitPrivatizer(epsilon=1, delta="1/2").assumed(1)
    if trust == "local":
        return (_LOCAL,)
    if trust == "pure-shuffle":  # the parts state the shuffler or aggregation
        return (ALL_HONEST,)
    return SumPrivatizer(trust=cast(Trust, trust), epsilon=1, failure="1/2").assumed(1)


def _complaints(top: Mapping[str, Any], stated: list[str]) -> Iterator[tuple[str, str]]:
    required = required_assumptions({**top, "assumptions": stated})
    found = [f"missing: {needed}" for needed in required if needed not in stated]
    found += [
        f"does not follow from the parts: {users}"
        for users in (NEW, _RETURNING)
        if users in stated and users not in required
    ]
    if (SYSTEM in stated) == (SEEDED in stated):
        found.append(f"must contain one of: {SYSTEM}; {SEEDED}")
    yield from (("assumptions", reason) for reason in found)
    if text_of("digest", top["digest"]) != digest_of(top):
        yield "digest", "does not match the text: the certificate was changed"


def _part(where: str, value: object, claims: Mapping[str, Fraction]) -> WorstPart:
    item = mapping(where, value)
    exactly(where, item, {"is", "claims", "certificate", "unchecked"})
    own, unchecked = item["certificate"], item["unchecked"]
    if (own is None) == (unchecked is None):
        raise Malformed(where, "must contain either a certificate or a reason why it is unchecked")
    stated = _claims(f"{where}.claims", item["claims"])
    if [*stated] != [*claims]:
        raise Malformed(
            f"{where}.claims", "must have the deltas of the claims of the run, in the same order"
        )
    return WorstPart(
        **_subject(f"{where}.is", item["is"]),
        claims=stated,
        certificate=None if own is None else mapping(f"{where}.certificate", own),
        unchecked="" if unchecked is None else _line(f"{where}.unchecked", unchecked),
    )


def _subject(where: str, value: object) -> dict[str, Any]:
    # The subject of a part: one release, rounds of releases, or an assumed claim.
    item = mapping(where, value)
    if "rounds_of" in item:
        return _rounds(where, item)
    if item.get("claim") == "assumed":
        return _assumed(where, item)
    if item.get("claim") == _SHUFFLE:
        return _shuffled(where, item)
    scope, inner = _curve(where, item, 1)
    return {"scope": scope, "inner": (inner,)}


def _curve(where: str, item: Mapping[str, Any], rounds: object) -> tuple[Mapping[str, str], Any]:
    exactly(where, item, {"claim", "noise", "sensitivity", "scope"})
    if item["claim"] != "curve":
        raise Malformed(f"{where}.claim", f"must be curve, {_SHUFFLE} or assumed")
    law = {"noise": item["noise"], "sensitivity": item["sensitivity"]}
    inner = {**law, "honest": "1", "rounds": rounds}
    _check_law(where, inner)
    return scope_of(f"{where}.scope", item["scope"]), inner


def _rounds(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    exactly(where, item, {"rounds_of", "unit"})
    found, relations = [], []
    for i, each in enumerate(items(f"{where}.rounds_of", item["rounds_of"])):
        place = f"{where}.rounds_of[{i}]"
        exactly(place, mapping(place, each), {"part", "rounds"})
        curve = mapping(f"{place}.part", each["part"])
        scope, inner = _curve(f"{place}.part", curve, each["rounds"])
        if scope["unit"] != "contribution":
            raise Malformed(f"{place}.part.scope.unit", "must be contribution")
        relations.append(scope["relation"])
        found.append(inner)
    if item["unit"] != "user":
        raise Malformed(f"{where}.unit", "must be user: a single contribution is in only one round")
    whole_scope = {"unit": item["unit"], "relation": relations[0]}
    scope_of(where, whole_scope)
    if len(set(relations)) > 1:
        raise Malformed(
            f"{where}.rounds_of",
            "must all have one relation: guarantees of different scopes do not compose",
        )
    if len({_law(each) for each in found}) < len(found):
        raise Malformed(f"{where}.rounds_of", "must not repeat a law; add its rounds instead")
    return {"scope": whole_scope, "inner": tuple(found)}


def _assumed(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    exactly(where, item, {"claim", "guarantee", "reason"})
    claim = mapping(f"{where}.guarantee", item["guarantee"])
    exactly(f"{where}.guarantee", claim, {"claim", "epsilon", "scope"})
    if claim["claim"] != "pure":
        raise Malformed(f"{where}.guarantee.claim", "must be pure")
    inner = {"claim": "pure", "epsilon": claim["epsilon"], "rounds": 1}
    part_of(f"{where}.guarantee", inner)
    scope = scope_of(f"{where}.guarantee.scope", claim["scope"])
    reason = _line(f"{where}.reason", item["reason"])
    if not reason.strip():
        raise Malformed(f"{where}.reason", "must be a non-empty reason for the claim")
    believed = Scope(unit=scope["unit"], relation=scope["relation"])
    total = compose(Assumed(Pure(claim["epsilon"], scope=believed), reason=reason))
    sentence = ascii_text(total.assumptions[0])
    return {"scope": scope, "inner": (inner,), "reason": reason, "assumption": sentence}


def _shuffled(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    counts, ratios = ("users", "honest", "precision", "reach"), ("cover", "shape", "scale")
    exactly(where, item, {"claim", "epsilon", "scope", *counts, *ratios})
    n, h, g, reach = (whole(f"{where}.{key}", item[key], 1, 10**9) for key in counts)
    cover, shape, scale = (rational(f"{where}.{key}", item[key]) for key in ratios)
    positive = zip(ratios, (cover, shape, scale), strict=True)
    for key, held, range_of in (
        ("cover", cover < 1, "< 1"),
        ("shape", shape <= 1, "<= 1"),
        ("honest", h <= n, "<= users"),
        *((key, value > 0, "> 0") for key, value in positive),
    ):
        if not held:
            raise Malformed(f"{where}.{key}", f"must be {range_of}")
    inner = {"claim": "pure", "epsilon": item["epsilon"], "rounds": 1}
    part_of(where, inner)
    share = PolyaDifference(shape=shape, scale=scale)
    try:
        shuffle = PureShuffle(users=n, precision=g, reach=reach, cover=cover, share=share)
    except InvalidParameter as error:
        raise Malformed(where, str(error)) from None
    scope = scope_of(f"{where}.scope", item["scope"])
    return {"scope": scope, "inner": (inner,), "shuffle": shuffle, "honest": h}


def _check_law(where: str, inner: Mapping[str, Any]) -> None:
    # A release has one value, or several that may all change; each case has its own norm.
    part = part_of(where, inner)
    if part.norm != "absolute" and not (part.norm == "box" and len(part.amounts) > 1):
        reason = "must be absolute for one number, or box for several"
        raise Malformed(f"{where}.sensitivity.norm", reason)


def _check_released(value: object, parts: tuple[WorstPart, ...], horizon: int) -> None:
    known = {_law(each) for part in parts for each in part.inner if "noise" in each}
    seen: set[str] = set()
    times = 0
    for i, each in enumerate(items("released", value, least=0, most=_MOST_PARTS)):
        where = f"released[{i}]"
        exactly(where, mapping(where, each), {"noise", "sensitivity", "times"})
        times += whole(f"{where}.times", each["times"], 1, horizon)
        law_of_one = {key: each[key] for key in ("noise", "sensitivity")}
        _check_law(where, {**law_of_one, "honest": "1", "rounds": 1})
        law = _law(each)
        if law not in known:
            raise Malformed(where, "does not belong to any part")
        if law in seen:
            raise Malformed(where, "is listed twice")
        seen.add(law)
    if times > horizon:
        raise Malformed("released", f"must not contain more releases than rounds ({horizon})")


def _claims(where: str, value: object) -> dict[str, Fraction]:
    # Maps delta to epsilon, in the listed order.
    found: dict[str, Fraction] = {}
    for i, each in enumerate(items(where, value)):
        place = f"{where}[{i}]"
        exactly(place, mapping(place, each), {"delta", "epsilon"})
        if not 0 < rational(f"{place}.delta", each["delta"]) < 1:
            raise Malformed(f"{place}.delta", "must lie in (0, 1)")
        if each["delta"] in found:
            raise Malformed(where, "must not repeat a delta")
        epsilon = text_of(f"{place}.epsilon", each["epsilon"])
        if not _DECIMAL.fullmatch(epsilon):
            raise Malformed(f"{place}.epsilon", "must be a decimal >= 0 without redundant zeros")
        found[each["delta"]] = Fraction(epsilon)
    return found


def _algorithm(value: object) -> str:
    name = _line("algorithm", value)
    if name != name.strip():
        raise Malformed("algorithm", "must not start or end with spaces")
    if name == _UNPROTECTED:
        raise Malformed("algorithm", f"{name} is not private, so it has no certificate")
    return name


def _line(where: str, value: object) -> str:
    text = text_of(where, value)
    if not text.isprintable():
        raise Malformed(where, "must be a single line of text")
    return text


def _law(part: Mapping[str, Any]) -> str:
    return json.dumps([part["noise"], part["sensitivity"]], sort_keys=True)


def _text_of_subject(part: WorstPart) -> str:
    inner = sorted(json.dumps(each, sort_keys=True) for each in part.inner)
    return json.dumps([part.scope, inner, repr(part.shuffle), part.honest], sort_keys=True)
