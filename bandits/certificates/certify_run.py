r"""Certify a run: the algorithm, its exact parameters, and a bound on the epsilon of each user.

Releases differ in the number of users, and therefore in their noise. Which release contains a given
user is not known in advance. The certificate therefore lists a *part* for each possible
participation of a user, and claims the weakest guarantee. Each part has its own certificate
(docs/certificates.md), checked by ``accounting.verify``, or is marked as unchecked. ``recheck``
needs only the text of the certificate. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, cast

from accounting.certificates.canonical_text import ascii_text, digest_of
from accounting.certificates.certificate_format import Malformed
from accounting.certificates.certify import certify
from accounting.composition.compose import Composition, compose
from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import ApproxBound, Assumed, Pure, PureBound, ZCdp
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.pure_shuffle_guarantee import CertifiedShuffle
from bandits.certificates.recheck import SCHEMA, SEEDED, SYSTEM, read, required_assumptions
from bandits.play import Run
from bandits.privatizers.run_guarantee import RunGuarantee
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import RationalLike, integer, rational_in, write_rational
from dpcore.numbers.rounding import up

_DIGITS: Final = 8
_STEPS: Final = 10_000
_STEPS_OF_MANY: Final = 100
_DIGITS_OF_MANY: Final = 5
_DIGITS_OF_SEVERAL: Final = 7
_MOST_CHECKED: Final = 32
_MORE_DIGITS: Final = (12, 16, 20, 25, 30)
_MOST_LETTERS: Final = 2000
_MOST_MOVES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCertificate:
    r"""The certificate of a run; :meth:`to_json` adds the schema and the digest to its fields."""

    algorithm: str
    arms: int
    horizon: int
    claims: tuple[Mapping[str, str], ...]
    parts: tuple[Mapping[str, Any], ...]
    released: tuple[Mapping[str, Any], ...]
    assumptions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        document = {"schema": SCHEMA, **json.loads(json.dumps(asdict(self)))}
        return {**document, "digest": digest_of(document)}

    def text(self) -> str:
        return json.dumps(self.to_json(), indent=2) + "\n"


def certificate_of(
    run: Run, *, deltas: Iterable[RationalLike] | RationalLike = ("1e-6",), most_steps: int = _STEPS
) -> RunCertificate:
    r"""Certify the epsilon of ``run`` at each of ``deltas`` in (0, 1), from its guarantee.

    Each part of the guarantee (:class:`~bandits.privatizers.run_guarantee.RunGuarantee`) gets its
    own certificate of these epsilons if its sensitivity is at most ``most_steps`` steps. For
    several releases with noise other than discrete Laplace, the limit is at most 100 steps. A check
    of such a certificate for a larger sensitivity would take too long or fail. The part then has a
    certificate only of its pure epsilon, or of the zCDP parameter of its Gaussian noise. If neither
    is known, the part is marked as unchecked. If the noise was not drawn from the operating system,
    an assumption states this.

    >>> import numpy as np
    >>> from bandits import BatchedElimination, Bernoulli, SumPrivatizer, play, recheck
    >>> private = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-4")
    >>> policy, world = BatchedElimination(privatizer=private), np.random.default_rng(1)
    >>> run = play(policy, Bernoulli(means=(0.9, 0.1)), horizon=1000, world=world)
    >>> certificate = certificate_of(run, deltas=["1e-6"])
    >>> certificate.claims[0]["epsilon"], recheck(certificate.text()).holds
    ('0.4999984', True)

    Raises :class:`NotDerived` if the run has no guarantee, no releases or an infinite epsilon, or
    if the certificate would have more than 1024 parts or a text of more than 2000 characters.
    Raises :class:`InvalidParameter` if the guarantee does not cover a recorded release, or if
    ``deltas`` is empty, repeats a value or contains a value outside (0, 1).
    """
    if not isinstance(run, Run):
        raise InvalidParameter("run", run, "must be a Run")
    return certify_run(
        run.policy,
        run.guarantee,
        Counter(release.mechanism for release in run.releases),
        arms=len(run.pulls),
        horizon=run.horizon,
        simulated=run.simulated,
        deltas=deltas,
        most_steps=most_steps,
    )


def certify_run(  # noqa: PLR0913  # the fields of a certificate
    policy: str,
    derived: RunGuarantee | None,
    released: Mapping[Mechanism, int],
    *,
    arms: int,
    horizon: int,
    simulated: bool,
    deltas: Iterable[RationalLike] | RationalLike = ("1e-6",),
    most_steps: int = _STEPS,
) -> RunCertificate:
    r"""Certify a run, given its guarantee and the number of releases of each mechanism."""
    most = integer("most_steps", most_steps, at_least=0)
    if derived is None:
        raise NotDerived(f"a certificate for {policy}", "a non-private policy has no guarantee")
    derived = _played(released, derived)
    if not derived.parts:
        raise NotDerived(
            f"a certificate for {policy}", "the policy releases nothing before round T"
        )
    at = _deltas(deltas)
    listed = _released(released, derived)
    if len(derived.parts) > _MOST_CHECKED and any(map(_is_vector, derived.parts)):
        most = 0
    parts = tuple(_part(part, at, most) for part in derived.parts)
    draft = RunCertificate(
        algorithm=ascii_text(policy),
        arms=arms,
        horizon=horizon,
        claims=tuple(_worst(parts, delta) for delta in at),
        parts=parts,
        released=listed,
        assumptions=(*map(ascii_text, derived.assumptions), SEEDED if simulated else SYSTEM),
    )
    assumed = (*required_assumptions(draft.to_json()), *draft.assumptions)
    found = replace(draft, assumptions=tuple(dict.fromkeys(assumed)))
    _check_form(found)
    return found


def _played(released: Iterable[Mechanism], derived: RunGuarantee) -> RunGuarantee:
    # If all releases are calibrated to the same target, only the actual releases are listed. Any
    # other release would also have met the target, or the calibration would have raised an error.
    if not any(type(part) in (ApproxBound, PureBound) for part in derived.parts):
        return derived
    found = {guarantee(mechanism): None for mechanism in released}
    return RunGuarantee(parts=tuple(found), assumptions=derived.assumptions)


def _deltas(deltas: Iterable[RationalLike] | RationalLike) -> list[Fraction]:
    # A single number becomes a list with one element; a string is a single number.
    several = isinstance(deltas, Iterable) and not isinstance(deltas, str)
    given = cast(Iterable[RationalLike], deltas) if several else (cast(RationalLike, deltas),)
    at = [rational_in("deltas", delta, "(0, 1)") for delta in given]
    if not at:
        raise InvalidParameter("deltas", (), "must contain at least one value")
    if len(set(at)) < len(at):
        raise InvalidParameter("deltas", [*map(write_rational, at)], "must not repeat a value")
    return at


def _check_form(certificate: RunCertificate) -> None:
    # A certificate that a reader would reject is never written.
    try:
        complaints = read(certificate.to_json()).complaints
    except Malformed as error:
        complaints = ((error.where, error.reason),)
    for where, reason in complaints:
        raise NotDerived(f"a certificate for {certificate.algorithm}", f"{where}: {reason}")


def _part(part: Guarantee, deltas: list[Fraction], most: int) -> dict[str, Any]:
    alone = RunGuarantee(parts=(part,), assumptions=())
    claims = []
    for delta in deltas:
        epsilon = alone.epsilon(delta).upper
        if epsilon == math.inf:
            wanted = f"a finite epsilon at delta = {write_rational(delta)}"
            raise NotDerived(wanted, f"the bound of {part!r} is infinite")
        claims.append({"delta": write_rational(delta), "epsilon": _above(epsilon)})
    document: dict[str, Any] = {"is": _stated(part), "claims": claims}
    found = _own_certificate(part, claims, deltas, most)
    if isinstance(found, str):
        exact = _exact_claims(part, claims)
        if exact is None:
            return {**document, "certificate": None, "unchecked": found}
        own = certify(_certifiable(part), deltas=()).to_json()
        return {**document, "claims": exact, "certificate": own, "unchecked": None}
    # If the certificate has fewer digits and proves only a larger bound, that bound is claimed.
    proved = {c["delta"]: c["upper"] for c in found["claims"] if c["quantity"] == "epsilon"}
    for claim in claims:
        larger = max(Fraction(claim["epsilon"]), Fraction(proved[claim["delta"]]))
        claim["epsilon"] = _above(larger)
    return {**document, "certificate": found, "unchecked": None}


def _own_certificate(
    part: Guarantee, claims: list[dict[str, str]], deltas: list[Fraction], most: int
) -> dict[str, Any] | str:
    # The certificate of a single part, or the reason why it has none.
    most, digits = _limits(part, most)
    if isinstance(part, CertifiedShuffle):
        return "the server's view is not described by one sum with noise"
    if isinstance(part, PrivacyCurve) and isinstance(part.noise, Binomial) and _is_vector(part):
        return "a run does not certify binomial noise of several numbers"
    if most == 0:
        return f"more than {_MOST_CHECKED} parts of several numbers each"
    amounts = _amounts(part)
    if max(amounts, default=0) > most:
        return f"more than {most} steps"
    if len(set(amounts)) > _MOST_MOVES:  # each needs a separate law
        return f"more than {_MOST_MOVES} distinct changes"
    # For a pure law epsilon(delta) is less than the largest loss by about delta, and the largest
    # loss is often a short decimal. To distinguish the two, epsilon needs about as many digits as
    # delta has zeros.
    largest = _largest(part)
    close = largest is not None and _above(largest) in [each["epsilon"] for each in claims]
    for count in (digits, *(_MORE_DIGITS if close else ())):
        try:
            return certify(_certifiable(part), deltas=deltas, digits=count).to_json()
        except NotDerived as error:
            reason = ascii_text(str(error))[:_MOST_LETTERS]
    return reason


def _exact_claims(part: Guarantee, claims: list[dict[str, str]]) -> list[dict[str, str]] | None:
    # An exact claim is checked for any size, and then claimed at every delta: a pure epsilon, or
    # the epsilon that follows from the zCDP of Gaussian noise.
    largest = _largest(part)
    if largest is not None:
        return [{**claim, "epsilon": _above(largest)} for claim in claims]
    gaussian = isinstance(part, PrivacyCurve) and isinstance(part.noise, DiscreteGaussian)
    rho = part.zcdp().upper if gaussian else math.inf
    if not isinstance(rho, Fraction):
        return None
    return [{**c, "epsilon": _above(ZCdp(rho).epsilon(c["delta"]).upper)} for c in claims]


def _amounts(part: Guarantee) -> list[int]:
    # The largest change of each value that a part releases.
    curves = [source for source, _ in part.parts] if isinstance(part, Composition) else [part]
    moved = [each.sensitivity for each in curves if isinstance(each, PrivacyCurve)]
    amounts = (Sensitivity.of(each).amount for each in moved)
    return [step for each in amounts for step in (each if isinstance(each, tuple) else (each,))]


def _largest(part: Guarantee) -> Fraction | None:
    found = part.pure().upper
    return found if isinstance(found, Fraction) else None


def _limits(part: Guarantee, most: int) -> tuple[int, int]:
    # Rounds with noise other than discrete Laplace are listed and integrated.
    laplace = isinstance(part, Composition) and all(
        isinstance(source, PrivacyCurve) and isinstance(source.noise, DiscreteLaplace)
        for source, _ in part.parts
    )
    if isinstance(part, Composition) and not laplace:
        return min(most, _STEPS_OF_MANY), _DIGITS_OF_MANY
    return most, _DIGITS_OF_SEVERAL if _is_vector(part) else _DIGITS


def _is_vector(part: Guarantee) -> bool:
    # Whether the part releases several values, which take seconds to check.
    return isinstance(part, PrivacyCurve) and len(_amounts(part)) > 1


def _certifiable(part: Guarantee) -> Any:
    match part:
        case Assumed():
            return compose(part)
        case CertifiedShuffle(stated_epsilon=epsilon):
            return Pure(epsilon)
    return part


def _stated(part: Guarantee) -> dict[str, Any]:
    match part:
        case CertifiedShuffle(protocol=protocol, honest=honest):
            return {
                "claim": "pure-shuffle",
                **part.parameters(),
                "scope": part.scope.to_json(),
                "users": protocol.users,
                "honest": honest,
                "precision": protocol.precision,
                "reach": protocol.reach,
                "cover": write_rational(protocol.cover),
                "shape": write_rational(protocol.share.shape),
                "scale": write_rational(protocol.share.scale),
            }
        case Composition():
            rounds = [{"part": _stated(source), "rounds": count} for source, count in part.parts]
            return {"rounds_of": rounds, "unit": part.scope.unit.value}
        case Assumed():
            return {**part.to_json(), "reason": ascii_text(part.reason)}
        case PrivacyCurve():
            written = part.to_json()
            noise = {key: str(value) for key, value in written["noise"].items()}
            return {**written, "noise": noise}
    reason = "it is not a release with noise, a composition, a pure shuffle or an assumption"
    raise NotDerived(f"a certificate for {part!r}", reason)


def _above(value: End) -> str:
    # Eight digits, rounded up, without an exponent.
    return f"{Decimal(up(value, _DIGITS)):f}"


def _worst(parts: tuple[Mapping[str, Any], ...], delta: Fraction) -> dict[str, str]:
    at = write_rational(delta)
    found = [c["epsilon"] for part in parts for c in part["claims"] if c["delta"] == at]
    return {"delta": at, "epsilon": max(found, key=Fraction)}


def _released(
    released: Mapping[Mechanism, int], derived: RunGuarantee
) -> tuple[dict[str, Any], ...]:
    known = [law for part in derived.parts for law in _laws(part)]
    found = []
    for mechanism, times in released.items():
        curve = PrivacyCurve(noise=mechanism.noise, sensitivity=mechanism.sensitivity)
        (law,) = _laws(curve)
        if law not in known:
            raise InvalidParameter(
                "releases", repr(mechanism), "is a release that the run's guarantee does not cover"
            )
        found.append({**law, "times": times})
    return tuple(found)


def _laws(part: Guarantee) -> list[dict[str, Any]]:
    # The noise and sensitivity of every release of a part.
    stated = _stated(part)
    listed = [each["part"] for each in stated.get("rounds_of", [{"part": stated}])]
    keys = ("noise", "sensitivity")
    return [{key: each[key] for key in keys} for each in listed if "noise" in each]
