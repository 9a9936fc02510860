r"""What releases cost: curves of laws, their compositions, budgets, ledgers and certificates.

The public names of accounting; each is documented where it is defined. The ledger and certificates
are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accounting.budget.calibrate import Calibration, calibrate
from accounting.budget.returning import per_user, routes
from accounting.claims.bound import Bound
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from accounting.release.guarantee import (
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
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.totals.compose import Composition, compose

if TYPE_CHECKING:
    from accounting.certificates.certificate import Certificate, certify
    from accounting.checker import verify
    from accounting.ledger import Ledger

__all__ = [
    "Approx",
    "Assumed",
    "Bound",
    "Calibration",
    "Certificate",
    "Claim",
    "Composition",
    "FixedSizeSampled",
    "Guarantee",
    "Ledger",
    "NotDerived",
    "PoissonSampled",
    "PrivacyCurve",
    "Pure",
    "Rdp",
    "ZCdp",
    "calibrate",
    "certify",
    "claim_from_json",
    "compose",
    "guarantee",
    "per_user",
    "routes",
    "verify",
]

_LATER = {
    "Certificate": "certificates.certificate",
    "Ledger": "ledger",
    "certify": "certificates.certificate",
    "verify": "checker",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'accounting' has no attribute {name!r}")
    found = getattr(import_module(f"accounting.{_LATER[name]}"), name)
    # Bound here, so that the next look finds it, and a submodule of the same name does not.
    globals()[name] = found
    return found
