r"""What releases cost: curves of laws, their compositions, budgets, ledgers and certificates.

The public names of accounting; each is documented where it is defined. Those of which one use does
not need the others are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING

from accounting.budget.calibrate import Calibration, calibrate
from accounting.budget.returning import per_user, routes
from accounting.claims.bound import Bound
from accounting.claims.claim import (
    Approx,
    Assumed,
    Pure,
    Rdp,
    StatedGuarantee,
    ZCdp,
    claim_from_json,
)
from accounting.claims.guarantee import Guarantee
from accounting.errors import NotDerived
from accounting.protocols.box import BinomialBox
from accounting.release.curve import PrivacyCurve
from accounting.release.guarantee import guarantee
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.theorems.convert import as_approx, as_approx_at, as_pure, as_rdp, as_zcdp
from accounting.totals.compose import Composition, compose
from dpcore.late import late_names

if TYPE_CHECKING:
    from accounting.certificates.certificate import Certificate, certify
    from accounting.checker import verify
    from accounting.ledger import Ledger
    from accounting.protocols.choose import Plan, choose, protocol_guarantee
    from accounting.theorems.filter import (
        ApproxFilter,
        Filter,
        PureFilter,
        RdpFilter,
        ZCdpFilter,
        filter_for,
    )
    from accounting.theorems.odometer import Odometer

__all__ = [
    "Approx",
    "ApproxFilter",
    "Assumed",
    "BinomialBox",
    "Bound",
    "Calibration",
    "Certificate",
    "Composition",
    "Filter",
    "FixedSizeSampled",
    "Guarantee",
    "Ledger",
    "NotDerived",
    "Odometer",
    "Plan",
    "PoissonSampled",
    "PrivacyCurve",
    "Pure",
    "PureFilter",
    "Rdp",
    "RdpFilter",
    "StatedGuarantee",
    "ZCdp",
    "ZCdpFilter",
    "as_approx",
    "as_approx_at",
    "as_pure",
    "as_rdp",
    "as_zcdp",
    "calibrate",
    "certify",
    "choose",
    "claim_from_json",
    "compose",
    "filter_for",
    "guarantee",
    "per_user",
    "protocol_guarantee",
    "routes",
    "verify",
]

__getattr__ = late_names(
    __name__,
    {
        "ApproxFilter": "theorems.filter",
        "Certificate": "certificates.certificate",
        "Filter": "theorems.filter",
        "Ledger": "ledger",
        "Odometer": "theorems.odometer",
        "Plan": "protocols.choose",
        "PureFilter": "theorems.filter",
        "RdpFilter": "theorems.filter",
        "ZCdpFilter": "theorems.filter",
        "certify": "certificates.certificate",
        "choose": "protocols.choose",
        "filter_for": "theorems.filter",
        "protocol_guarantee": "protocols.choose",
        "verify": "checker",
    },
)
