r"""What releases cost: curves derived from laws, and protocols chosen for a target.

The public names of accounting; each is documented where it is defined.
"""

from accounting.curve import PrivacyCurve
from accounting.errors import NotDerived
from accounting.guarantee import (
    Approx,
    Assumed,
    Claim,
    Guarantee,
    Pure,
    Rdp,
    ZCdp,
    claim_from_json,
    guarantee,
)

__all__ = [
    "Approx",
    "Assumed",
    "Claim",
    "Guarantee",
    "NotDerived",
    "PrivacyCurve",
    "Pure",
    "Rdp",
    "ZCdp",
    "claim_from_json",
    "guarantee",
]
