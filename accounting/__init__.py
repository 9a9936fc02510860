r"""Privacy accounting: privacy curves, compositions, budgets, ledgers and certificates.

Each public name is documented in the module that defines it, and is imported at first use.
"""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from accounting.amplification.shuffling import ShuffledCurve
    from accounting.calibration.calibrate_noise_rounds_or_rate import Calibration, calibrate
    from accounting.certificates.certificate_format import Malformed
    from accounting.certificates.certify import Certificate, certify
    from accounting.certificates.deadline import deadline
    from accounting.certificates.verify_certificate import (
        Allowance,
        Finding,
        Status,
        Verdict,
        verify,
    )
    from accounting.composition.compose import Composition, compose
    from accounting.composition.composition_theorems import per_user, routes
    from accounting.composition.guarantee_from_json import guarantee_from_json
    from accounting.composition.training_run import TrainingRun, dpsgd
    from accounting.convert_guarantees import (
        as_approx,
        as_approx_at,
        as_pure,
        as_rdp,
        as_zcdp,
    )
    from accounting.derive_guarantee import (
        FixedSizeSampled,
        PoissonSampled,
        guarantee,
    )
    from accounting.descriptions.description import Description
    from accounting.descriptions.real_noise import Gaussian, Laplace
    from accounting.errors import NotDerived
    from accounting.guarantees.bound import Bound
    from accounting.guarantees.guarantee import Guarantee
    from accounting.guarantees.stated_guarantees import (
        Approx,
        Assumed,
        Pure,
        Rdp,
        StatedGuarantee,
        ZCdp,
        claim_from_json,
    )
    from accounting.ledger import Ledger
    from accounting.privacy_curves.local_report_curve import ReportCurve
    from accounting.privacy_curves.release_curve import PrivacyCurve
    from accounting.privacy_filters import (
        ApproxFilter,
        Filter,
        Odometer,
        PureFilter,
        RdpFilter,
        ZCdpFilter,
        filter_for,
    )
    from accounting.protocol_guarantees.plan_protocol import Plan, choose, protocol_guarantee
    from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox

__all__ = [
    "Allowance",
    "Approx",
    "ApproxFilter",
    "Assumed",
    "BinomialBox",
    "Bound",
    "Calibration",
    "Certificate",
    "Composition",
    "Description",
    "Filter",
    "Finding",
    "FixedSizeSampled",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "Malformed",
    "NotDerived",
    "Odometer",
    "Plan",
    "PoissonSampled",
    "PrivacyCurve",
    "Pure",
    "PureFilter",
    "Rdp",
    "RdpFilter",
    "ReportCurve",
    "ShuffledCurve",
    "StatedGuarantee",
    "Status",
    "TrainingRun",
    "Verdict",
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
    "deadline",
    "dpsgd",
    "filter_for",
    "guarantee",
    "guarantee_from_json",
    "per_user",
    "protocol_guarantee",
    "routes",
    "verify",
]

__getattr__ = lazy_names(__name__)
