r"""An assertion for test suites: does a sampler draw from its claimed law?"""

from __future__ import annotations

import secrets
from typing import Any, Final

from audit.claims import format_p_value
from audit.fit.fit import FitReport, fit
from audit.testing.assertions import Refuted
from audit.verdict_words_and_exit_codes import INTERRUPTED
from dpcore.noise import Noise
from dpcore.numbers.parameter import RationalLike, integer, rational, write_rational
from dpcore.parse_noise import write_noise

_RUNS: Final = 20_000
_ALPHA: Final = "1e-6"


def assert_fits(
    sampler: Any,
    noise: Noise,
    *,
    runs: int = _RUNS,
    alpha: RationalLike = _ALPHA,
    seed: int | None = None,
    again: str | None = None,
) -> FitReport:
    r"""Fail if a test refutes that ``sampler`` draws from ``noise``, else return the report.

    If the sampler has this law and its draws are independent, the probability of :class:`Refuted`
    is at most ``alpha``. ``sampler`` is f(n, rng), f(rng), f(), or noise, as in
    :func:`audit.fit.fit.fit`.

    >>> from dpcore import DiscreteLaplace
    >>> assert_fits(DiscreteLaplace(scale=1), DiscreteLaplace(scale=2), seed=7)
    Traceback (most recent call last):
    ...
    audit.testing.assertions.Refuted: ... does not draw from discrete-laplace:scale=2
    ...

    Raises the errors of :func:`audit.fit.fit.fit`, and :class:`audit.errors.TargetFailed`.
    """
    __tracebackhide__ = True
    chosen = secrets.randbits(32) if seed is None else integer("seed", seed, at_least=0)
    report = fit(sampler, noise, runs=runs, alpha=alpha, seed=chosen)
    if report.error is not None:
        raise report.error.with_traceback(None)
    if report.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    if report.verdict == "not_refuted":
        return report
    level, p_value = write_rational(rational("alpha", alpha)), format_p_value(report.p_value or 0.0)
    repeat = again or f"assert_fits(..., runs={runs}, alpha={level!r}, seed={chosen})"
    sentence = (
        f"{report.target} does not draw from {write_noise(noise)}\n"
        f"  witness: {report.witness}\n"
        f"  p-value {p_value}, alpha {level}, {report.runs:,} draws\n"
        f"  again: {repeat}"
    )
    raise Refuted(sentence, report)
