r"""What a mechanism guarantees, derived from its noise, sensitivity and scope.

Mostly a :class:`PrivacyCurve`; a law with an engine of its own higher up registers it by
:func:`serve`. Nothing here takes an epsilon from its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from accounting.claims.guarantee import Guarantee
from accounting.laws.registry import worst
from accounting.release.curve import PrivacyCurve
from accounting.release.matrix import MatrixCurve, MatrixMechanism, MatrixOrders
from dpcore.continual.stream import ContinualSum
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.noise import Noise

__all__ = ["guarantee", "serve"]

Derive: TypeAlias = Callable[[Mechanism], Guarantee | None]

_SERVED: Final[dict[type[Noise], Derive]] = {}


def guarantee(mechanism: Mechanism | ContinualSum | MatrixMechanism) -> Guarantee:
    r"""The privacy of one release of ``mechanism``, or of a stream's sums, under its scope.

    >>> from dpcore import DiscreteLaplace
    >>> guarantee(Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)).pure()
    Bound([0.1, 0.1], 'exact')

    Raises :class:`NotDerived` for a law whose worst shift no theorem gives: what is believed of it
    can be written as :class:`Assumed`, with a reason.
    """
    if isinstance(mechanism, MatrixMechanism):
        integers = isinstance(mechanism.noise, DiscreteGaussian)
        return (MatrixOrders if integers else MatrixCurve)(mechanism=mechanism)
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


def serve(noise: type[Noise], derive: Derive) -> None:
    r"""Let ``derive`` say what mechanisms with this law guarantee; None leaves one to the curve."""
    _SERVED[noise] = derive
