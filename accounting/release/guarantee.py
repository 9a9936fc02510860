r"""Derive the guarantee of a mechanism or description from its noise, sensitivity and scheme.

The one place that chooses an engine by the kind of a release; a law with an engine of its own
higher up registers it by :func:`serve`. Nothing here takes an epsilon from its caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

from accounting.claims.claim import Pure, ZCdp
from accounting.claims.guarantee import Guarantee
from accounting.laws.registry import worst
from accounting.mechanism.description import Description
from accounting.mechanism.real_noise import RealNoise
from accounting.mechanism.sampling_schemes import (
    EVERYONE,
    Allocation,
    FixedSize,
    Poisson,
    Scheme,
    Shifts,
    TruncatedPoisson,
)
from accounting.release.allocation import RandomAllocation
from accounting.release.curve import PrivacyCurve
from accounting.release.group import GroupSampled, ShiftSampled
from accounting.release.matrix import MatrixCurve, MatrixMechanism, MatrixOrders
from accounting.release.poisson_replace_one import PoissonReplaced
from accounting.release.real_curve import RealCurve
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.release.truncated import PoissonTruncated
from dpcore.continual.stream import ContinualSum
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.local import LocalReport
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.noise import Noise
from dpcore.selection import AboveThreshold, NoisyMax, Rule, Selection

_ROUNDED: Final = 10**9

Choosing: TypeAlias = Selection | NoisyMax | AboveThreshold
Derive: TypeAlias = Callable[[Mechanism], Guarantee | None]

_SERVED: Final[dict[type[Noise], Derive]] = {}


def guarantee(
    mechanism: Mechanism | ContinualSum | MatrixMechanism | Choosing | LocalReport | Description,
) -> Guarantee:
    r"""The guarantee of one release of ``mechanism``, or of a stream's sums, under its scope.

    A :class:`Description` also has noise on the reals, a sampling scheme and a group. The guarantee
    of a local report is the log of its largest likelihood ratio, rounded up.

    >>> from dpcore import DiscreteLaplace
    >>> guarantee(Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)).pure()
    Bound([0.1, 0.1], 'exact')

    Raises :class:`NotDerived` for a law whose worst shift is not known; state an assumed guarantee
    as :class:`Assumed`, with a reason.
    """
    if isinstance(mechanism, Description):
        return _described(mechanism)
    if isinstance(mechanism, MatrixMechanism):
        integers = isinstance(mechanism.noise, DiscreteGaussian)
        return (MatrixOrders if integers else MatrixCurve)(mechanism=mechanism)
    if isinstance(mechanism, AboveThreshold | NoisyMax):
        return Pure(mechanism.epsilon, scope=mechanism.scope)
    if isinstance(mechanism, Selection):
        if mechanism.rule is Rule.PERMUTE_AND_FLIP:
            return Pure(mechanism.epsilon, scope=mechanism.scope)
        # The loss of each choice has range epsilon/count.
        rho = mechanism.epsilon**2 / (8 * mechanism.count)
        return ZCdp(rho, scope=mechanism.scope)
    if isinstance(mechanism, LocalReport):
        loss = Fraction(mechanism.loss.upper)
        rounded, stated = Fraction(math.ceil(loss * _ROUNDED), _ROUNDED), mechanism.epsilon
        return Pure(min(rounded, stated) if loss <= stated else rounded, scope=mechanism.scope)
    if isinstance(mechanism, ContinualSum):
        mechanism = mechanism.mechanism
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter(
            "mechanism", mechanism, "must be a Mechanism; of a protocol, protocol.mechanism(honest)"
        )
    derive = _SERVED.get(type(mechanism.noise))
    found = None if derive is None else derive(mechanism)
    if found is not None:
        return found
    worst(mechanism.noise, Sensitivity.of(mechanism.sensitivity))
    return PrivacyCurve(
        noise=mechanism.noise, sensitivity=mechanism.sensitivity, scope=mechanism.scope
    )


def _described(asked: Description) -> Guarantee:
    scheme = asked.scheme
    if scheme.everybody:
        return _of_all(asked.unsampled)
    curve: Any = _of_all(replace(asked, scheme=EVERYONE, relation=asked.added, group=1))
    engine = _ENGINES.get(type(scheme))
    given = {each.name: getattr(scheme, each.name) for each in fields(scheme)}
    if isinstance(scheme, Poisson) and asked.group > 1:
        engine, given["members"] = GroupSampled, asked.group
    elif isinstance(scheme, Poisson) and asked.replaced:
        engine = PoissonReplaced
    elif isinstance(scheme, TruncatedPoisson):
        given["relation"] = asked.relation
    if engine is None:
        raise InvalidParameter("scheme", scheme, "has no known privacy bound")
    return engine(curve=curve, **given)


_ENGINES: Final[dict[type[Scheme], Callable[..., Guarantee]]] = {
    Poisson: PoissonSampled,
    FixedSize: FixedSizeSampled,
    Allocation: RandomAllocation,
    Shifts: ShiftSampled,
    TruncatedPoisson: PoissonTruncated,
}


def _of_all(asked: Description) -> Guarantee:
    if isinstance(asked.noise, RealNoise):
        return RealCurve(noise=asked.noise, sensitivity=asked.sensitivity, scope=asked.scope)
    return guarantee(Mechanism(noise=asked.noise, sensitivity=asked.sensitivity, scope=asked.scope))


def serve(noise: type[Noise], derive: Derive) -> None:
    r"""Register ``derive`` for mechanisms with this law; if it returns None, the curve is used."""
    _SERVED[noise] = derive
