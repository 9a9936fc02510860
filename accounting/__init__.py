r"""What releases cost: curves of laws, their compositions, budgets, ledgers and certificates.

The public names of accounting; each is documented where it is defined. The ledger and certificates
are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accounting.bound import Bound
from accounting.calibrate import Calibration, calibrate
from accounting.compose import Composition, compose
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
from accounting.returning import per_user, routes
from accounting.subsampling import FixedSizeSampled, PoissonSampled

if TYPE_CHECKING:
    from accounting.certificate import Certificate, certify
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
    "Certificate": "certificate",
    "Ledger": "ledger",
    "certify": "certificate",
    "verify": "checker",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'accounting' has no attribute {name!r}")
    found = getattr(import_module(f"accounting.{_LATER[name]}"), name)
    # Bound here, so that the next look finds it, and a submodule of the same name does not.
    globals()[name] = found
    return found
