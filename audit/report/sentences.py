r"""Sentences of an audit report, shared by the terminal and the HTML page.

Printed bounds are rounded in the direction in which they stay valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from audit.claims.claim import format_rational
from audit.claims.verdicts import VerdictWord, cause_of, format_p_value
from audit.formats.result import format_share
from audit.statistical_tests.coverage import unmeasured_pairs, unseen
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.claims.claim import Claim
    from audit.errors import TargetFailed
    from audit.fit.fit import FitReport
    from audit.statistical_tests.clopper_pearson_baselines import BaselineFinding
    from audit.statistical_tests.coverage import Coverage
    from audit.statistical_tests.sample_outcome import Outcome

FAULTS: Final = "FAULTS FOUND"
r"""The headline if the claim is not refuted but the code has a fault."""

_NAMED: Final = 3


def confidence(alpha: RationalLike) -> str:
    r"""The confidence of all bounds together, rounded down."""
    return f"{down(100 * (1 - rational('alpha', alpha)), 6)}%"


def below_claim(epsilon_lower: float, refuted: Claim, alpha: RationalLike) -> str | None:
    r"""The reason why a bound does not exceed the refuted epsilon; None if it does."""
    epsilon = refuted.exact[0]
    if epsilon_lower > epsilon:
        return None
    return (
        f"not above the refuted epsilon = {format_rational(epsilon)}: the bound is the first "
        f"epsilon, from 0 up, that is not refuted; the test of the claim itself shows that "
        f"epsilon exceeds {format_rational(epsilon)}, with {confidence(alpha)} confidence"
    )


def refutals(alpha: RationalLike) -> str:
    r"""A sentence on how many audits of a true claim may refute it."""
    cases = format_share(rational("alpha", alpha), 6)
    return f"at most {cases} such audits would give REFUTED (independent runs)"


def meaning(
    verdict: VerdictWord | None,
    claim: str,
    alpha: RationalLike,
    *,
    runs: int,
    error: TargetFailed | None,
    coverage: Sequence[Coverage] = (),
) -> str:
    r"""The meaning of a verdict for the claim, and its limits."""
    match verdict:
        case "refuted" if runs:
            return f"The claim {claim} does not hold. If it did, {refutals(alpha)}."
        case "refuted":
            return f"The claim {claim} does not hold: proven from the exact output distributions."
        case "proven":
            return (
                f"The outputs on this pair satisfy {claim}: proven from their exact distributions. "
                "The proof applies only to these distributions and this pair."
            )
        case "not_refuted":
            return (
                f"The evidence does not contradict {claim}. This is not a proof: a violation in "
                "the blind spot below may have gone unnoticed."
            )
        case "nothing_measured":
            return f"The runs do not measure {claim}{_unmeasured(coverage)}."
    reason = "" if error is None else f"It {error.sentence}. "
    return f"{reason}There is no verdict on {claim}."


def blind_spot(
    resolution: float,
    coverage: Sequence[Coverage],
    *,
    verdict: VerdictWord | None,
    unresolved: str | None,
) -> str:
    r"""The violations that these runs could have missed; probabilities are rounded up."""
    if verdict == "nothing_measured":
        return f"everything{_unmeasured(coverage)}"
    if not math.isfinite(resolution) and unresolved is not None:
        return f"not known: {unresolved}"
    if not math.isfinite(resolution):
        return "everything: the runs are too few to refute anything reliably"
    cases = format_share(resolution)
    return (
        f"a revealing output in fewer than {cases} runs could have gone unnoticed{unseen(coverage)}"
    )


def _unmeasured(coverage: Sequence[Coverage]) -> str:
    first = next(iter(unmeasured_pairs(coverage)), None)
    several = any(each.pair for each in coverage)
    where = f" on pair {first.pair + 1}" if first and several else ""
    return f"{where}: {first.reason if first else 'no run was drawn'}"


def not_tested(features: Sequence[str]) -> str:
    r"""Name what an audit by these features did not test."""
    time = "" if "time" in features else ", and the time of a call (--feature time)"
    return f"other pairs of datasets{time}"


def tested(outcomes: Sequence[Outcome], *, pairs: bool) -> str:
    r"""The number of refuting tests and the first ones; ``pairs``: whether to name the pair."""
    refuted = [outcome for outcome in outcomes if outcome.refuted]
    found = f"{len(refuted)} of {len(outcomes)} refuted"
    named = [
        str(outcome.claim)
        + (f" on pair {outcome.pair + 1}" if pairs else "")
        + (f" by {outcome.feature}" if outcome.feature is not None else "")
        for outcome in refuted[:_NAMED]
    ]
    more = ", ..." if len(refuted) > _NAMED else ""
    return found + (f": {'; '.join(named)}{more}" if named else "")


def values_alone(outcomes: Sequence[Outcome]) -> str | None:
    r"""The result of the tests of values if there is a floating-point leak; None without tests."""
    found = [row.epsilon_lower for row in outcomes if cause_of(row.feature) == "values"]
    return f"not refuted without the leak; epsilon at least {down(max(found))}" if found else None


def fitted(report: FitReport) -> str:
    r"""A sentence on whether the draws follow the law."""
    from dpcore.parse_noise import write_noise  # imports every law

    law, runs = write_noise(report.law), f"{report.runs:,} draws"
    if report.verdict == "refuted":
        return f"{runs} do not follow the distribution {law}: {report.witness}"
    if report.e_value is not None:
        return f"{runs}, e-value {down(report.e_value, 3)} against the law {law}"
    return f"{runs}, p-value {format_p_value(report.p_value or 0.0)} for the law {law}"


def compared(baseline: BaselineFinding) -> str:
    r"""The bound of another method, rounded down, with a remark."""
    bound = baseline.epsilon_lower
    return baseline.says if bound is None else f"{down(bound)} ({baseline.says})"


def scored(score: dict[str, Any]) -> str:
    r"""A phrase on the training and the main columns of a learned score."""
    right = "" if score["accuracy"] is None else f", right on {score['accuracy']:.1%} of new runs"
    most = ", ".join(f"{each['column']} ({each['share']:.0%})" for each in score["most"])
    return f"learned from {score['learned_from']:,} earlier runs{right}; mainly {most}"


def repeated(seed: int, *, repeatable: bool) -> str:
    r"""The option that repeats the audit, and its limits."""
    only = "" if repeatable else " (repeats the draws of the audit, but not those of the target)"
    return f"--seed {seed}{only}"


def leak(feature: str | None) -> str | None:
    r"""What a witness reveals if it is not the magnitude of the output; otherwise None."""
    match cause_of(feature):
        case "time":
            return (
                "the time of a call on this machine, not the output. A difference of nanoseconds "
                "is enough: even Python's sum takes longer for some lists than for others. To "
                "audit the output alone: --feature identity"
            )
        case "floating-point":
            return (
                "the lowest bits of the output. In floats they come from the floating-point "
                "representation of the noise, not from its scale. Rounding the output does not fix "
                "this; sample integer noise instead: value + "
                "dpcore.DiscreteLaplace(scale=sensitivity / epsilon).sample(). To audit the values "
                "alone: --floats ignore (floats='ignore' in Python)"
            )
    return None
