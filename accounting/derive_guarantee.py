r"""Derive the guarantee of a mechanism or description from its noise, sensitivity and scheme.

The type of the release selects the method. A stated epsilon is never an input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from accounting.amplification.random_allocation import AllocatedSample
from accounting.amplification.shuffling import ShuffledCurve
from accounting.amplification.subsampling import (
    Curve,
    DescribedSample,
    FixedSizeSample,
    MixedSample,
    PoissonSample,
    ReplacedSample,
    TruncatedSample,
    curve_of,
)
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import RealNoise
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    Allocation,
    FixedSize,
    Poisson,
    Scheme,
    Shifts,
    Shuffled,
    TruncatedPoisson,
)
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import BoundedRange, PureBound
from accounting.law_pairs.registry import coordinates_of, heaviest
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.matrix_mechanism import MatrixCurve, MatrixMechanism, MatrixOrders
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import OneRelease, PrivacyCurve
from dpcore.continual_sums import ContinualSum
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.local import LocalReport, ShuffledReports
from dpcore.mechanism import Mechanism, Relation, Sensitivity
from dpcore.numbers.parameter import RationalLike
from dpcore.selection import AboveThreshold, NoisyMax, Rule, Selection

Choosing: TypeAlias = Selection | NoisyMax | AboveThreshold
Reported: TypeAlias = LocalReport | ShuffledReports
Derivable: TypeAlias = (
    Mechanism | ContinualSum | MatrixMechanism | Choosing | Reported | Description
)
"""The types that :func:`guarantee` accepts."""


def guarantee(mechanism: Derivable) -> Guarantee:
    r"""Derive the guarantee of one release of ``mechanism``, under the scope of ``mechanism``.

    The guarantee of a :class:`ContinualSum` covers all sums of its stream. A :class:`Description`
    may also contain real-valued noise, a sampling scheme and a group size.

    >>> from dpcore import DiscreteLaplace
    >>> guarantee(Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)).pure()
    Bound([0.1, 0.1], 'exact')

    Raises :class:`NotDerived` if it is unknown which change of the query is the worst case for the
    noise. Use :class:`Assumed` to state a guarantee that cannot be derived.
    """
    if isinstance(mechanism, Description):
        return _described(mechanism)
    if isinstance(mechanism, MatrixMechanism):
        integers = isinstance(mechanism.noise, DiscreteGaussian)
        return (MatrixOrders if integers else MatrixCurve)(mechanism=mechanism)
    if isinstance(mechanism, Selection) and mechanism.rule is not Rule.PERMUTE_AND_FLIP:
        return BoundedRange(mechanism.epsilon, mechanism.count, scope=mechanism.scope)
    if isinstance(mechanism, Choosing):
        return PureBound(mechanism.epsilon, scope=mechanism.scope)
    if isinstance(mechanism, LocalReport):
        return ReportCurve.of(mechanism)
    if isinstance(mechanism, ShuffledReports):
        report, scope = mechanism.report, mechanism.scope
        scheme, relation = Shuffled(users=mechanism.users), scope.relation
        return _described(
            Description(noise=report, scheme=scheme, relation=relation, unit=scope.unit)
        )
    if isinstance(mechanism, ContinualSum):
        mechanism = mechanism.mechanism
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter(
            "mechanism",
            mechanism,
            "must be a mechanism or a description; for a protocol, use protocol.mechanism(honest)",
        )
    coordinates_of(mechanism.noise, heaviest(Sensitivity.of(mechanism.sensitivity)))
    return PrivacyCurve(
        noise=mechanism.noise, sensitivity=mechanism.sensitivity, scope=mechanism.scope
    )


def sampled(
    curve: Curve, scheme: Scheme, relation: Relation | None = None, group: int = 1
) -> OneRelease:
    r"""The guarantee of a release that uses only a random sample of the units.

    ``curve`` is the guarantee of the same release from all units. Its relation must be replace if
    samples have a fixed size, and add-remove for every other scheme. Neighbours differ in ``group``
    units by ``relation``, by default the first relation in ``scheme.words``.

    >>> from accounting.descriptions.real_noise import Gaussian
    >>> from dpcore import Scope
    >>> curve = RealCurve(
    ...     noise=Gaussian(sigma=2), sensitivity=1, scope=Scope(relation="add-remove")
    ... )
    >>> sampled(curve, Poisson(rate="1/100"), group=3).delta("1/10")
    Bound([0.0000134976928748824..., 0.0000134976928748824...], 'exact')

    Raises :class:`InvalidParameter` if ``curve`` is not a :class:`PrivacyCurve` or
    :class:`RealCurve`, if it has another relation, or if :class:`Description` refuses the
    arguments.
    """
    if not isinstance(curve, (PrivacyCurve, RealCurve)):
        raise InvalidParameter("curve", curve, "must be a PrivacyCurve or a RealCurve")
    description = Description(
        noise=curve.noise,
        sensitivity=curve.sensitivity,
        scheme=scheme,
        relation=relation,
        unit=curve.scope.unit,
        group=group,
    )
    stated = replace(description.scope, relation=description.added, group=1)
    if curve.scope != stated:
        must = f"must be {stated!r}, the scope of the stated sensitivity"
        raise InvalidParameter("scope", curve.scope, must)
    return curve_of(description.unsampled) if scheme.everybody else _sample_of(description)


def PoissonSampled(*, curve: Curve, rate: RationalLike) -> OneRelease:  # noqa: N802  # like a class
    r"""Amplify privacy by Poisson sampling: each unit is in the sample with probability ``rate``.

    Units are sampled independently. Neighbours differ by adding or removing a unit, so the relation
    of ``curve`` must be add-remove.

    >>> from dpcore import DiscreteGaussian, Scope
    >>> scope = Scope(relation="add-remove")
    >>> noise = DiscreteGaussian(sigma_squared=4)
    >>> curve = PrivacyCurve(noise=noise, sensitivity=1, scope=scope)
    >>> PoissonSampled(curve=curve, rate="1/100").epsilon("1e-6")
    Bound([0.043467932030483635, 0.043467932030483636], 'exact')

    Raises :class:`InvalidParameter` unless ``curve`` is a curve with the relation add-remove and
    the rate is in (0, 1].
    """
    return sampled(curve, Poisson(rate=rate))


def FixedSizeSampled(  # noqa: N802  # like a class
    *, curve: Curve, sample: int, population: int
) -> OneRelease:
    r"""Amplify privacy by sampling ``sample`` of ``population`` units without replacement.

    Every subset of this size is equally likely. Neighbours differ by replacing a unit, so the
    relation of ``curve`` must be replace.

    >>> from dpcore import DiscreteGaussian
    >>> curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=4), sensitivity=1)
    >>> FixedSizeSampled(curve=curve, sample=10, population=1000).epsilon("1e-6")
    Bound([0.043467932030483635, 0.043467932030483636], 'exact')

    Raises :class:`InvalidParameter` unless ``curve`` is a curve with the relation replace and 1 <=
    sample <= population.
    """
    return sampled(curve, FixedSize(sample=sample, population=population))


def _described(description: Description) -> Guarantee:
    if description.scheme.everybody:
        return _of_all(description.unsampled)
    if isinstance(description.noise, LocalReport):
        return _sample_of(description)
    whole = _of_all(replace(description, scheme=EVERYONE, relation=description.added, group=1))
    if not isinstance(whole, (PrivacyCurve, RealCurve)):
        raise InvalidParameter(
            "noise", description.noise, "has no privacy curve, which sampling requires"
        )
    return _sample_of(description)


def _sample_of(description: Description) -> DescribedSample:
    scheme = description.scheme
    kind = _SAMPLES.get(type(scheme))
    if isinstance(scheme, Poisson) and description.group > 1:
        kind = MixedSample
    elif isinstance(scheme, Poisson) and description.replaced:
        kind = ReplacedSample
    if kind is None:
        raise InvalidParameter("scheme", scheme, "has no known privacy bound")
    return kind(description=description)


_SAMPLES: Final[dict[type[Scheme], type[DescribedSample]]] = {
    Poisson: PoissonSample,
    FixedSize: FixedSizeSample,
    Allocation: AllocatedSample,
    Shifts: MixedSample,
    TruncatedPoisson: TruncatedSample,
    Shuffled: ShuffledCurve,
}


def _of_all(description: Description) -> Guarantee:
    if isinstance(description.noise, RealNoise):
        return curve_of(description)
    if isinstance(description.noise, LocalReport):
        return ReportCurve.of(description.noise)
    scope, moved = description.scope, description.moved
    one = replace(scope, group=1)
    found = guarantee(Mechanism(noise=description.noise, sensitivity=moved, scope=one))
    return found if scope == one else cast("Guarantee", replace(cast("Any", found), scope=scope))
