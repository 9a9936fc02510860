r"""The releases that repeated options spell, read into a composition, and how answers show them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from accounting.cli.options import computed_by, each, whole
from dpcore.command.options import named, option, read_law, share
from dpcore.command.output_file import check_writable, write_whole
from dpcore.command.table import fact
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Relation, Scope, Sensitivity
from dpcore.spelling import read_sensitivity, write_noise, write_sensitivity

if TYPE_CHECKING:
    from accounting.claims.bound import Bound
    from accounting.claims.guarantee import Guarantee
    from accounting.release.curve import PrivacyCurve
    from accounting.totals.compose import Composition

__all__ = [
    "MARGIN",
    "NEIGHBOURS",
    "SCHEMA",
    "WIDTH",
    "CertificateFile",
    "Group",
    "Neighbours",
    "Noises",
    "Releases",
    "Rounds",
    "Sampled",
    "Sensitivities",
    "document",
    "line",
    "lines_of",
    "rate_of",
    "told",
    "write_certificate",
]

SCHEMA: Final = "dpcore-budget/1"
MARGIN: Final = 13
NEIGHBOURS: Final = (
    "How neighbouring datasets differ: one person replaced (replace), or added or removed "
    "(add-remove)."
)
WIDTH: Final = "How close the two bounds must be, as a part of their size."

Noises = Annotated[
    list[str],
    option(
        "NOISE",
        "The noise of a release, e.g. skellam:variance=400; for noise added in floats "
        "gaussian:sigma=1.1 or laplace:scale=2. Repeat it for further releases.",
        "--noise",
        default=...,
    ),
]
Sensitivities = Annotated[
    list[str] | None,
    option(
        "D",
        "How much one person can change the query (1 for a count); for vectors l1=3, "
        "l2-squared=4 or box=1x2 (a bound for each entry). Once, or once for each --noise. "
        "(default: 1)",
        "--sensitivity",
        default=...,
    ),
]
Rounds = Annotated[
    list[str] | None,
    option(
        "K",
        "How many releases, e.g. 1000 or 1e3. Once, or once for each --noise. (default: 1)",
        "--rounds",
        default=...,
    ),
]
Sampled = Annotated[
    list[str] | None,
    option(
        "RATE",
        "Poisson subsampling: the chance that a person takes part in a round, e.g. 1% or "
        "256/60000, drawn anew each round and kept secret. --sensitivity is then what adding a "
        "person changes. Once, or once for each --noise. (default: 100%)",
        "--poisson",
        default=...,
    ),
]

CertificateFile = Annotated[
    Path | None,
    option(
        "FILE",
        "Also write a certificate of this epsilon, for dpcore verify.",
        "--certificate",
        default=...,
    ),
]

Neighbours = Annotated[
    Relation | None,
    option(
        "WORD",
        f"{NEIGHBOURS} (default: add-remove with --poisson, else replace)",
        "--relation",
        default=...,
        case_sensitive=False,
    ),
]
Group = Annotated[
    str,
    option(
        "K",
        "Group privacy: protect K people at once, all replaced, or all added or removed.",
        "--group",
        default=...,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    r"""Options that spell a list of releases, one group for each noise, as they were written."""

    noise: Noises
    sensitivity: Sensitivities = None
    rounds: Rounds = None
    poisson: Sampled = None
    relation: Neighbours = None
    group: Group = "1"

    def composed(self) -> Composition:
        r"""Their composition, between neighbours by ``relation``, ``group`` people at once.

        If it is None, by one who is added or removed where people are sampled, else by one who is
        replaced.
        """
        from accounting.totals.compose import compose

        count, poisson = len(self.noise), self.poisson or []
        moved = each("--sensitivity", self.sensitivity or [], count, "1")
        moves = [read_sensitivity("--sensitivity", text) for text in moved]
        times = [whole("--rounds", r, 1) for r in each("--rounds", self.rounds or [], count, "1")]
        rates = [rate_of(p) for p in each("--poisson", poisson, count, "100%")]
        people = whole("--group", self.group, 1)
        between = self.relation or (Relation.ADD_REMOVE if poisson else Relation.REPLACE)
        parts: list[tuple[Guarantee, int]] = []
        for spelled, move, rate, time in zip(self.noise, moves, rates, times, strict=True):
            if poisson:
                part = _sampled(spelled, move, rate, between, people)
            else:
                part = _curve(spelled, move.times(people), Scope(relation=between))
            parts.append((part, time))
        return compose(*parts)


def _sampled(
    spelled: str, move: Sensitivity, rate: Fraction, relation: Relation, people: int
) -> Guarantee:
    # The sensitivity is that of a person who is added.
    from accounting.reals.noise import Laplace
    from accounting.release.group import GroupSampled
    from accounting.release.real_curve import RealCurve
    from accounting.release.replaced import PoissonReplaced
    from accounting.release.subsampling import PoissonSampled

    added = Scope(relation=Relation.ADD_REMOVE)
    if relation is Relation.REPLACE and people > 1:
        reason = "must be 1 where sampled people are replaced: of more no bound is proven"
        raise InvalidParameter("--group", people, reason)
    if rate == 1 and relation is Relation.ADD_REMOVE:
        return _curve(spelled, move.times(people), added)
    part = _curve(spelled, move, added)
    if relation is Relation.REPLACE:
        if not isinstance(part, RealCurve):
            reason = (
                "must be add-remove with --poisson, unless noise is gaussian or laplace, in floats"
            )
            raise InvalidParameter("--relation", relation.value, reason)
        return PoissonReplaced(curve=part, rate=rate)
    if people > 1:
        real = part if isinstance(part, RealCurve) else None
        if real is None or isinstance(real.noise, Laplace):
            reason = "must be 1 with --poisson, unless the noise is gaussian"
            raise InvalidParameter("--group", people, reason)
        with named(members="--group", noise="--noise", sigma="--noise"):
            return GroupSampled(curve=real, rate=rate, members=people)
    return PoissonSampled(curve=cast("PrivacyCurve", part), rate=rate)  # it checks


def _curve(spelled: str, move: Sensitivity, scope: Scope) -> Guarantee:
    from accounting.reals.noise import read_real_noise
    from accounting.release.guarantee import guarantee
    from accounting.release.real_curve import RealCurve

    real = read_real_noise("--noise", spelled)
    if real is not None:
        with named(scale="--noise"):
            return RealCurve(noise=real, sensitivity=move, scope=scope)
    try:
        noise = read_law("--noise", spelled)
    except InvalidParameter as error:
        reason = error.reason.replace("start with one of", "start with one of gaussian, laplace,")
        raise InvalidParameter("--noise", spelled, reason) from None
    return guarantee(Mechanism(noise=noise, sensitivity=move, scope=scope))


def rate_of(text: str) -> Fraction:
    r"""A sampling rate: 1%, 0.01 or 256/60000.

    >>> rate_of("256/60000")
    Fraction(8, 1875)
    """
    rate = share("--poisson", text)
    if not rate:
        raise InvalidParameter("--poisson", text, "must be above 0%: nobody is ever sampled")
    return rate


def told(source: Guarantee, rounds: int) -> str:
    r"""One part in a line, as a command spells it."""
    from accounting.claims.claim import Approx, Pure, Rdp, ZCdp, said
    from accounting.release.allocation import RandomAllocation
    from accounting.release.curve import PrivacyCurve
    from accounting.release.group import GroupSampled, ShiftSampled
    from accounting.release.real_curve import RealCurve
    from accounting.release.replaced import PoissonReplaced
    from accounting.release.subsampling import FixedSizeSampled, PoissonSampled

    match source:
        case PrivacyCurve() | RealCurve():
            curve, rate = source, ""
        case PoissonSampled():
            curve, rate = source.curve, f" --poisson {source.rate}"
        case PoissonReplaced():
            curve, rate = source.curve, f" --poisson {source.rate}, of which a unit is replaced"
        case GroupSampled():
            curve, rate = source.curve, f" --poisson {source.rate} --group {source.members}"
        case ShiftSampled():
            curve = source.curve
            chances = " ".join(str(each) for each in source.weights)
            rate = f", times 0 to {source.members} with the chances {chances}"
        case RandomAllocation():
            curve, rate = source.curve, f", {source.picks} of {source.rounds} rounds at random"
        case FixedSizeSampled():
            curve, rate = source.curve, f", {source.sample} of {source.population} at a time"
        case Pure() | Approx() | ZCdp() | Rdp():
            return f"{rounds} x a claim of {said(source)}"
        case _:
            return f"{rounds} x {source!r}"
    moves = write_sensitivity(Sensitivity.of(curve.sensitivity))
    noise = curve.noise.written if isinstance(curve, RealCurve) else write_noise(curve.noise)
    return f"{rounds} x {noise} --sensitivity {moves}{rate}"


def write_certificate(path: Path | None, total: Composition, delta: Fraction) -> None:
    r"""Certify epsilon at ``delta`` in a file, if one is asked for: whole, or not at all."""
    if path is None:
        return
    from accounting.certificates.certificate import certify

    check_writable("--certificate", path)
    write_whole("--certificate", path, certify(total, deltas=[delta]).text())


def document(answer: dict[str, Any], total: Composition, found: Bound) -> dict[str, Any]:
    r"""The answer with what it is of, for ``--json``."""
    return {
        "schema": SCHEMA,
        **answer,
        "rounds": total.rounds,
        "method": found.method,
        "theorem": found.theorem,
        "parts": total.to_json(),
        "assumptions": list(total.assumptions),
    }


def lines_of(total: Composition, found: Bound) -> list[str]:
    r"""What was composed, by which method, and what is assumed."""
    lines = [line("rounds", told(source, count)) for source, count in total.parts]
    lines.append(line("method", computed_by(found)))
    return lines + [line("assumes", reason) for reason in total.assumptions]


def line(name: str, value: str) -> str:
    r"""One fact."""
    return fact(name, value, margin=MARGIN)
