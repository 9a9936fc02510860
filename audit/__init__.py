r"""Test mechanisms: does the implementation satisfy its privacy claim?

    import audit

    report = audit.audit(noisy_count, "epsilon=1", pair=([0, 1], [1, 1]))
    print(report)

The public names are loaded on first use, so that ``import audit`` is fast. Each name is documented
in the module that defines it.
"""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from audit.audit_spec import AuditSpec
    from audit.claims import Claim, CurveClaim, read_claim
    from audit.errors import TargetFailed
    from audit.fit.fit import FitReport
    from audit.replay.replay_report import Finding
    from audit.replay.sensitivity import declare
    from audit.report.audit_record import ExactWitness
    from audit.report.audit_report import AuditReport
    from audit.run_audit import Audit, audit
    from audit.statistical_tests.event import Witness
    from audit.statistical_tests.sample_outcome import Outcome
    from audit.targets.target_syntax import read_target
    from audit.testing.assertions import (
        NothingMeasured,
        Refuted,
        assert_private,
        assert_sensitivity,
    )
    from audit.testing.fits import assert_fits
    from audit.training.canary_audit import CanaryReport, canaries
    from audit.training.check_dpsgd_step import dpsgd
    from audit.training.step_report import StepReport

__all__ = [
    "Audit",
    "AuditReport",
    "AuditSpec",
    "CanaryReport",
    "Claim",
    "CurveClaim",
    "ExactWitness",
    "Finding",
    "FitReport",
    "NothingMeasured",
    "Outcome",
    "Refuted",
    "StepReport",
    "TargetFailed",
    "Witness",
    "assert_fits",
    "assert_private",
    "assert_sensitivity",
    "audit",
    "canaries",
    "declare",
    "dpsgd",
    "read_claim",
    "read_target",
]

__getattr__ = lazy_names(__name__)
