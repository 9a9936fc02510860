r"""What a mechanism guarantees, derived from its noise, sensitivity and scope.

The words themselves are data (``claim``); the whole of what one release loses is a
:class:`PrivacyCurve`. Nothing here takes an epsilon from its caller.
"""

from __future__ import annotations

from typing import TypeAlias

from accounting.claims.claim import Approx, Assumed, Claim, Pure, Rdp, ZCdp, claim_from_json
from accounting.laws.registry import worst
from accounting.release.curve import PrivacyCurve
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Sensitivity

__all__ = [
    "Approx",
    "Assumed",
    "Claim",
    "Guarantee",
    "PrivacyCurve",
    "Pure",
    "Rdp",
    "ZCdp",
    "claim_from_json",
    "guarantee",
]

Guarantee: TypeAlias = Claim | PrivacyCurve
"""Whatever may be composed, converted or charged."""


def guarantee(mechanism: Mechanism) -> PrivacyCurve:
    r"""The exact privacy curve of one release of ``mechanism``, under its scope.

    >>> from dpcore import DiscreteLaplace
    >>> guarantee(Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)).pure()
    Pure('1/10')

    Raises :class:`NotDerived` for a law whose worst shift no theorem gives: what is believed of it
    can be written as :class:`Assumed`, with a reason.
    """
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter("mechanism", mechanism, "must be a Mechanism")
    worst(mechanism.noise, Sensitivity.of(mechanism.sensitivity))
    return PrivacyCurve(
        noise=mechanism.noise, sensitivity=mechanism.sensitivity, scope=mechanism.scope
    )
