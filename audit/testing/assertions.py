r"""Assertions for test suites: does this code satisfy its claim, its law, its sensitivity?

    assert_private(noisy_count, "epsilon=1", pairs=[(0, 1)])
    assert_fits(sampler, DiscreteLaplace(scale=1))
    assert_sensitivity(query, pairs, 1)

The first two assertions are statistical: each fails on correct code with probability at most its
``alpha``. ``assert_sensitivity`` compares integers exactly. Many tests can share one alpha budget:
see ``audit.testing.pytest_plugin``. ``assert_fits`` is in ``audit.testing.fits``. Slow imports are
made when this module is imported, because hypothesis has a time limit for each example.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

# Imported here, not in the first example of a property, because hypothesis times each example.
import audit.known_laws.exact_layer
import audit.sample_layer  # noqa: F401 - as above
from audit.audit_spec import AuditSpec
from audit.claims import Claim, CurveClaim, format_p_value
from audit.formats.shorten import cut
from audit.outputs.copies import copies
from audit.report.audit_report import AuditReport
from audit.run_audit import Audit
from audit.statistical_tests.sample_outcome import unmeasured_pairs
from audit.targets.check_neighbours import read_pairs
from audit.targets.target import KnownLaw
from audit.targets.target_syntax import Auditable
from audit.verdict_words_and_exit_codes import CAUSES
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.mechanism import Norm, Relation, Sensitivity
from dpcore.numbers.parameter import RationalLike, integer, rational, write_rational
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.fit.fit import FitReport

_RUNS: Final = 20_000
_ALPHA: Final = "1e-6"
_SHOWN: Final = 200


class _Failed(AssertionError):
    def __init__(self, sentence: str, report: AuditReport | FitReport | None = None) -> None:
        super().__init__(sentence)
        self.report = report


class Refuted(_Failed):
    r"""Raised when an assertion is refuted; ``report`` is None from :func:`assert_sensitivity`."""


class NothingMeasured(_Failed):
    r"""Raised when nothing could be tested, e.g. because all outputs are equal.

    ``report`` is the report of the audit.
    """

    report: AuditReport


def assert_private(  # noqa: PLR0913 - each is an option of an audit
    target: Auditable,
    claim: Claim | CurveClaim | str,
    *,
    pair: tuple[Any, Any] | None = None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    runs: int = _RUNS,
    alpha: RationalLike = _ALPHA,
    seed: int | None = None,
    again: str | None = None,
    features: Iterable[str] = (),
    floats: str = "test",
    allow_constant: bool = False,
    relation: Relation | str | None = None,
) -> tuple[AuditReport, ...]:
    r"""Audit ``target`` on each pair and return the reports; fail if ``claim`` is refuted.

    ``claim`` is text such as "epsilon=1" or "epsilon=1,delta=1e-6". Give one ``pair`` of
    neighbouring datasets or several ``pairs``; a catalogue entry has its own pair. ``relation`` is
    "replace" (default) or "add-remove"; pairs that contradict it are refused.

    If the claim holds and runs are independent, the probability of :class:`Refuted` is at most
    ``alpha``: each of k pairs is tested at level alpha/k. ``runs`` is the number of runs for one
    pair, both datasets together. If the law of the target is known, as for noise, the claim is
    proven or refuted without runs. For other targets, passing is not a proof: ``resolution`` of a
    report is the least probability at which 95 of 100 audits detect a revealing output.

    Pair i = 0, 1, ... is audited with ``seed`` + i. Without ``seed``, a random seed is used, and
    printed on failure. ``again`` replaces the instructions for repeating the audit in the message
    of a failure. ``features`` are applied to the outputs (``audit.features``). ``floats="ignore"``
    ignores the floating-point representation of outputs. The test also fails if nothing was
    measured: if all outputs are equal, or if more than half of the outputs are distinct and have no
    order. ``allow_constant`` accepts equal outputs.

    >>> from dpcore import DiscreteLaplace
    >>> noise = DiscreteLaplace(scale=1)
    >>> assert_private(noise, "epsilon=1", pairs=[(0, 1)])[0].verdict
    'proven'
    >>> assert_private(lambda x: x + noise.sample(), "epsilon=1/2", pairs=[(0, 1)], seed=7)
    Traceback (most recent call last):
    ...
    audit.testing.assertions.Refuted: ... violates epsilon=0.5 on the pair (0, 1): ...

    Raises :class:`Refuted`, :class:`NothingMeasured`, :class:`InvalidParameter` if an argument is
    invalid or the runs are too few to refute anything, and :class:`audit.errors.TargetFailed` if
    the target returns no outputs.
    """
    given = {name: value for name, value in locals().items() if name != "again"}
    given["seed"] = secrets.randbits(32) if seed is None else seed
    __tracebackhide__ = True
    return check_private(AuditSpec(**given, timeout=None), again=again)


def check_private(spec: AuditSpec, *, again: str | None = None) -> tuple[AuditReport, ...]:
    r"""Like :func:`assert_private`, for a spec whose seed is set."""
    __tracebackhide__ = True
    try:
        return _checked(spec, again)
    except DpcoreError as error:
        # Hide the traceback of the audit: the message suffices, and pytest shows the caller.
        raise error.with_traceback(None)  # noqa: B904 - it is the same error, with its cause


def _checked(spec: AuditSpec, again: str | None) -> tuple[AuditReport, ...]:
    __tracebackhide__ = True
    ready = Audit(spec)
    plan = ready.plan
    if isinstance(ready.target, KnownLaw):
        spec = replace(spec, layers="exact", runs=None, features=(), floats="test")
    share = rational("alpha", plan.alpha) / len(plan.pairs)
    reports = []
    for i, pair in enumerate(plan.pairs):
        one = replace(spec, pair=pair, pairs=None, alpha=share, seed=plan.seed + i)
        report = Audit(one).completed()
        _require_power(report)
        if report.verdict == "refuted":
            repeat = again or (
                f"assert_private(..., pairs=[pair], runs={plan.runs}, "
                f"alpha={write_rational(share)!r}, seed={one.seed})"
            )
            raise Refuted(_refutation(report, repeat), report)
        if report.verdict == "nothing_measured":
            reason = unmeasured_pairs(report.coverage)[0].reason
            message = f"nothing was measured on the pair {_short(report.pair)}: {reason}"
            raise NothingMeasured(f"{report.target}: {message}", report)
        reports.append(report)
    return tuple(reports)


def _require_power(report: AuditReport) -> None:
    # Refuse a test that cannot fail.
    few = report.verdict == "nothing_measured" and not math.isfinite(report.resolution)
    if few and not any(each.constant or each.learned or each.blind for each in report.coverage):
        alpha = write_rational(rational("alpha", report.alpha))
        claim = f"{report.claim} at alpha = {alpha}"
        reason = f"are too few to refute {claim}, for any outputs: use more runs"
        raise InvalidParameter("runs", report.runs, reason)


def _refutation(report: AuditReport, repeat: str) -> str:
    by = CAUSES[report.refuted_by or "values"]
    least = f"epsilon is at least {down(report.epsilon_lower)}"
    pair = _short(report.pair)
    lines = [f"{report.target} violates {report.claim} on the pair {pair}{by}: {least}"]
    if report.below_claim is not None:
        lines.append(f"  bound: {report.below_claim}")
    lines += [f"  {name}: {text}" for name, text in report.witness_rows()]
    if report.runs:
        a, b = report.runs_by_world
        alpha = write_rational(rational("alpha", report.alpha))
        runs = f"{a:,} runs on dataset A and {b:,} on dataset B"
        lines.append(f"  p-value {format_p_value(report.p_value or 0.0)}, alpha {alpha}, {runs}")
        lines.append(f"  again: {repeat}")
        if not report.repeatable:
            lines.append("  (the target draws its own randomness: the outputs will differ)")
    lines += [f"  note: {warning}" for warning in report.warnings]
    return "\n".join(lines)


def assert_sensitivity(
    query: Callable[[Any], Any], pairs: Iterable[tuple[Any, Any]], bound: Sensitivity | int
) -> None:
    r"""Fail if integer answers of ``query`` change by more than ``bound`` between two neighbours.

    The test is exact, but covers only the given pairs; ``audit.testing.strategies`` generates
    pairs.

    >>> assert_sensitivity(len, [([], ["ada"])], 1)
    >>> assert_sensitivity(sum, [([3, 4], [3, 9])], Sensitivity(4))
    Traceback (most recent call last):
    ...
    audit.testing.assertions.Refuted: sum changes by 5 on the pair ([3, 4], [3, 9]), from 7 ...

    Raises :class:`Refuted`, and :class:`InvalidParameter` if an answer is not an integer, if two
    calls of the query on one dataset differ, or if the norm of ``bound`` does not fit the answers.
    """
    __tracebackhide__ = True
    declared = Sensitivity.of(bound)
    name = getattr(query, "__qualname__", None) or repr(query)
    for a, b in read_pairs("pairs", pairs):
        here, there = _answer(query, a, "A"), _answer(query, b, "B")
        change = (
            f"on the pair {_short((a, b))}, from {_format_answer(here)} to {_format_answer(there)}"
        )
        if len(here) != len(there):
            raise Refuted(f"{name} changes the number of its answers {change}")
        changes = [abs(x - y) for x, y in zip(here, there, strict=True)]
        size, within = _distance(changes, declared)
        if not within:
            raise Refuted(f"{name} changes by {size} {change}: more than {declared!r}")


def _answer(query: Callable[[Any], Any], dataset: Any, name: str) -> tuple[int, ...]:
    # Every call gets its own copy, because a query may modify its dataset.
    fresh = copies(f"dataset {name}", dataset)
    first, second = (_integers(query(fresh())) for _ in range(2))
    if first != second:
        reason = "gives two different answers on one dataset: remove the noise from the query"
        raise InvalidParameter("query", f"{first} and {second}", reason)
    return first


def _integers(answer: Any) -> tuple[int, ...]:
    if isinstance(answer, np.ndarray):
        answer = answer.reshape(-1).tolist() if answer.dtype.kind in "iu" else [answer]
    several = answer if isinstance(answer, list | tuple) else [answer]
    return tuple(integer("the answer of the query", part) for part in several)


def _distance(moves: list[int], declared: Sensitivity) -> tuple[str, bool]:
    amount = declared.amount
    if isinstance(amount, tuple):
        if len(moves) != len(amount):
            reason = f"must contain one bound for each of the {len(moves)} answers"
            raise InvalidParameter("bound", declared, reason)
        within = all(move <= most for move, most in zip(moves, amount, strict=True))
        return str(tuple(moves)), within
    match declared.norm:
        case Norm.L1:
            size = sum(moves)
        case Norm.L2_SQUARED:
            size = sum(move * move for move in moves)
        case _:
            if len(moves) != 1:
                reason = f"applies to one answer, not to {len(moves)}: write Sensitivity.l1(d)"
                raise InvalidParameter("bound", declared, reason)
            size = moves[0]
    return str(size), size <= amount


def _format_answer(answer: tuple[int, ...]) -> str:
    return str(answer[0]) if len(answer) == 1 else _short(answer)


def _short(value: Any) -> str:
    return cut(repr(value), _SHOWN)
