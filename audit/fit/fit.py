r"""Goodness-of-fit test of a sampler, layer 2 of an audit.

Draws are counted in cells that depend only on the law, and the counts are compared with the law by
five tests with fixed weights:

    directed   the largest of three standardised scores (position, distance from the mean, squared
               distance), by Monte Carlo: detects a wrong scale or location
    omnibus    the likelihood-ratio statistic G of all cells, by Monte Carlo
    tilted     the same scores by Chernoff's bound, if Monte Carlo cannot reach alpha
    cells      every cell and half-line by its exact binomial tails
    residues   wide laws modulo 2, 3 and 5, by exact binomial tails

p = min p_i / w_i. A single value of probability 0 refutes the law. ``sequential`` tests during the
draws, see ``audit.fit.statistics``. Statements and proofs: ``docs/proofs/exact_audits.md``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from scipy import stats
from scipy.special import logsumexp, rel_entr

from audit.audit_spec import AuditSpec
from audit.claims import (
    INTERRUPTED,
    LOOKS,
    VERDICTS,
    LayerRun,
    evidence,
    level_upper,
    log_bar,
)
from audit.errors import TargetFailed
from audit.fit.sampler import Sampler, sampler_of
from audit.fit.statistics import (
    SIMULATIONS,
    TILTED_WEIGHT,
    TILTS,
    WEIGHTS,
    CellCounts,
    FitCells,
    Integers,
    fit_p_values,
    joined,
    log_wealth,
    log_wealths,
)
from audit.formats.result import Result, Statement, computed, fact, format_share
from audit.outputs.call_guard import stdout_to_stderr
from audit.statistical_tests.sample_outcome import versions
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import up
from dpcore.parse_noise import write_noise

FitVerdict: TypeAlias = Literal["refuted", "not_refuted"]

FIXED: Final = LayerRun(
    layer="fit",
    method="calibrated cell tests",
    proves="if draws are independent and follow the law, P(p-value <= alpha) <= alpha",
)
SEQUENTIAL: Final = LayerRun(
    layer="fit",
    method="mixture of likelihood ratios",
    proves="if draws are independent and follow the law, P(e-value ever >= 1/alpha) <= alpha",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWitness:
    r"""The event whose count is furthest from the law.

    ``probability`` encloses the probability of the event; a count outside ``expected`` has
    probability at most alpha, for this event alone. The event was chosen after the draws, so the
    evidence is the p-value or e-value of the report, not this interval.
    """

    event: str = fact("the event, in words")
    count: int = fact("draws in the event")
    draws: int
    expected: tuple[int, int] = fact("[least, most] usual count")
    probability: tuple[float, float] = fact("[lower, upper] of the probability of the event")

    def __str__(self) -> str:
        low, high = self.expected
        usual = f"{low:,} to {high:,}" if low < high else f"{low:,}"
        return f"{self.event}: {self.count:,} of {self.draws:,} draws, {usual} expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport(Result):
    r"""The report of a fit: does the sampler draw from the claimed law?

    >>> from dpcore.laws.discrete_laplace import DiscreteLaplace
    >>> report = FitReport(
    ...     target="f", law=DiscreteLaplace(scale=1), verdict="refuted", alpha="0.05", runs=5
    ... )
    >>> report.to_json()["law"], report.exit_code
    ('discrete-laplace:scale=1', 1)
    """

    SCHEMA: ClassVar[str] = "dpcore-fit/1"

    target: str = fact("the name of the sampler")
    law: Noise = fact(
        'the claimed law as text, e.g. "discrete-laplace:scale=1"', write=write_noise, kind="str"
    )
    verdict: FitVerdict | None = fact(
        "the verdict; null if the target failed", kind="Literal['refuted', 'not_refuted'] | None"
    )
    alpha: RationalLike = fact("the false-alarm level", write=level_upper, kind="float")
    p_value: float | None = fact(
        "the p-value of the law, for a number of draws fixed in advance", default=None
    )
    e_value: float | None = fact(
        'the e-value of the law, for --sequential: its largest value so far; "inf" if a value of '
        "probability 0 was drawn",
        default=None,
    )
    runs: int = fact("draws tested")
    stopped: str = fact("why no more draws were made", default="as many as planned")
    witness: FitWitness | None = fact(
        '{"event", "count", "expected": [least, most], "probability": [lower, upper]}',
        default=None,
    )
    resolution: float = fact(
        "a mean absolute deviation that is wrong by this fraction would be refuted in about 95 of "
        "100 fits; null if no such fraction is known",
        write=lambda value: value if math.isfinite(value) else None,
        kind="float | None",
        default=math.inf,
    )
    evidence: dict[str, float] = fact(
        "{name of a test: its own p-value, or its share of the wealth at the last draw}",
        default_factory=dict,
    )
    method: LayerRun = fact(
        "the method of the test", write=lambda layer: layer.method, kind="str", default=FIXED
    )
    seed: int | None = fact("the seed that repeats the fit", default=None)
    error: TargetFailed | None = fact(
        '{"reason", "run"} when the target failed',
        write=lambda error: None if error is None else {"reason": error.reason, "run": error.run},
        default=None,
    )
    warnings: tuple[str, ...] = fact("a list of sentences", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("the meaning of the result, with its assumptions", before="seed")
    def proves(self) -> str:
        return self.method.proves

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 not refuted, 1 refuted, 3 the target failed."""
        return VERDICTS[self.verdict].exit_code

    def statement(self) -> Statement:
        r"""The report as sentences."""
        has = "does not follow" if self.verdict == "refuted" else "as"
        return Statement(
            verdict=VERDICTS[self.verdict].words,
            about=f"{self.target} {has} {write_noise(self.law)}",
            rows=tuple(_rows(self)) if self.runs else (),
            style=VERDICTS[self.verdict].style,
        )


def _rows(report: FitReport) -> Iterator[tuple[str, str]]:
    alpha = rational("alpha", report.alpha)
    if (report.p_value, report.e_value) != (None, None):
        yield "evidence", evidence(alpha, p_value=report.p_value, e_value=report.e_value)
    if report.witness is not None and report.verdict == "refuted":
        yield "witness", str(report.witness)
    yield "draws", f"{report.runs:,}: {report.stopped}"
    missed = "a wrong spread of any size: there are too few draws to detect it"
    if report.resolution < 1:
        percent = up(100 * report.resolution, 2)
        missed = (
            f"a mean absolute deviation that is wrong by less than {percent}% could go unnoticed"
        )
    yield "blind spot", missed
    cases = format_share(alpha, 6)
    yield (
        "trust",
        f"if the law were true, at most {cases} such fits would give REFUTED (independent draws)",
    )
    if report.seed is not None:
        yield "repeat", f"--seed {report.seed}"


_ROUNDING: Final = 2.0**-40
_DETECTED: Final = 0.95


def fit(  # noqa: PLR0913 - what is fitted, how far, and for how long
    sampler: Any,
    noise: Noise,
    *,
    runs: int = 100_000,
    alpha: RationalLike = "0.001",
    seed: int | None = None,
    sequential: bool = False,
    timeout: float | None = None,
    deadline: float | None = None,
    target: str | None = None,
) -> FitReport:
    r"""Test whether ``sampler`` draws from ``noise``, with ``runs`` draws (if sequential, the
    maximum).

    A sampler is f(n, rng) returning n integers (rng a numpy Generator), f(rng) or f() returning
    one, a :class:`Noise`, a mapping of integers to masses, or an object with scipy's ``rvs(size=,
    random_state=)``. If the sampler fails, the report has ``error`` and no verdict. ``target`` is
    the name of the sampler in the report.

    The level holds over the draws and the randomness of the simulations: without a ``seed`` both
    are fresh, and the report has the seed. The same seed for many samplers of one law repeats the
    simulations, so their errors are not independent.
    """
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    AuditSpec(
        runs=runs, alpha=alpha, seed=seed, timeout=timeout, deadline=deadline
    )  # raises if invalid
    if not isinstance(noise, Noise):
        raise InvalidParameter(
            "noise", noise, "must be a dpcore Noise, e.g. DiscreteLaplace(scale=1)"
        )
    level = rational("alpha", alpha)
    draws, coins = np.random.SeedSequence(seed).spawn(2)
    source = sampler_of(sampler, draws, timeout=timeout)
    source = source if target is None else replace(source, spelling=target)
    start = _Watched(noise=noise, cells=cells_of(noise, runs), alpha=level, sequential=sequential)
    until = math.inf if deadline is None else time.monotonic() + deadline
    return _report(source, _draw(source, start, runs, until), seed, coins)


@lru_cache(maxsize=64)
def cells_of(noise: Noise, runs: int) -> FitCells:
    r"""The cells for a law and a number of draws."""
    return FitCells.of(noise, runs)


# -- drawing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    # The state of a fit after some draws.
    noise: Noise
    cells: FitCells
    alpha: Fraction
    sequential: bool
    seen: CellCounts | None = None
    log_e: float = 0.0
    stopped: str = "nothing was drawn"
    error: TargetFailed | None = None

    @property
    def runs(self) -> int:
        return 0 if self.seen is None else self.seen.draws

    @property
    def impossible(self) -> tuple[str, int] | None:
        return None if self.seen is None else self.cells.impossible(self.noise, self.seen)

    @property
    def decided(self) -> bool:
        if not self.sequential:
            return False
        return self.log_e >= log_bar(self.alpha) or self.impossible is not None

    def plus(self, draws: Integers) -> _Watched:
        fresh = self.cells.count(draws)
        seen = fresh if self.seen is None else self.seen.plus(fresh)
        log_e = max(self.log_e, log_wealth(self.cells, seen)) if self.sequential else 0.0
        return replace(self, seen=seen, log_e=log_e)


def _draw(source: Sampler, watched: _Watched, runs: int, until: float) -> _Watched:
    with stdout_to_stderr(), source.watchdog:
        try:
            for size in _pieces(runs, source.piece, sequential=watched.sequential):
                watched = watched.plus(source.draw(size))
                if watched.decided:
                    return replace(watched, stopped="the evidence sufficed")
                if time.monotonic() >= until and watched.runs < runs:
                    return replace(watched, stopped="the deadline was reached")
        except TargetFailed as error:
            return replace(watched, stopped="the target failed", error=error)
        except KeyboardInterrupt:
            if not watched.runs:
                raise
            return replace(watched, stopped=INTERRUPTED)
    return replace(watched, stopped="as many as planned")


def _pieces(runs: int, largest: int, *, sequential: bool) -> Iterator[int]:
    drawn = 0
    for look in LOOKS if sequential else (runs,):
        while drawn < min(look, runs):
            size = min(look, runs, drawn + largest) - drawn
            yield size
            drawn += size


# -- the report ---------------------------------------------------------------------------------


def _report(
    source: Sampler, watched: _Watched, seed: int, coins: np.random.SeedSequence
) -> FitReport:
    cells, seen, alpha = watched.cells, watched.seen, watched.alpha
    cut_short = watched.runs and watched.stopped in _CUT and not watched.sequential
    report = FitReport(
        target=source.spelling,
        law=watched.noise,
        verdict=None,
        alpha=alpha,
        runs=watched.runs,
        stopped=watched.stopped,
        method=SEQUENTIAL if watched.sequential else FIXED,
        seed=seed,
        error=watched.error,
        warnings=(_CUT_SHORT,) if cut_short else (),
        versions=versions(),
    )
    if seen is None:
        return report
    impossible = watched.impossible
    p_value = e_value = None
    if watched.sequential:
        log_e = math.inf if impossible else watched.log_e
        found, e_value, refuted = _grouped(cells, seen), _exp(log_e), log_e >= log_bar(alpha)
    else:
        found = fit_p_values(cells, seen, np.random.default_rng(coins))
        p_value = 0.0 if impossible else joined(found)
        refuted = p_value <= round_down(alpha)
    verdict: FitVerdict = "refuted" if refuted else "not_refuted"
    return replace(
        report,
        verdict=None if watched.error is not None else verdict,
        p_value=p_value,
        e_value=e_value,
        evidence=found,
        witness=_excluded(*impossible, seen) if impossible else witness(cells, seen, alpha),
        resolution=resolution(cells, seen.draws, alpha, sequential=watched.sequential),
    )


_CUT: Final = ("the target failed", INTERRUPTED, "the deadline was reached")
_CUT_SHORT: Final = (
    "ended before its planned draws: the confidence holds only if the time of the end does not "
    "depend on the draws"
)


def _grouped(cells: FitCells, seen: CellCounts) -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for name, value in log_wealths(cells, seen):
        parts.setdefault(name, []).append(value)
    return {name: _exp(float(logsumexp(values))) for name, values in parts.items()}


def _exp(log_e: float) -> float:
    # Limited to a finite float; infinite only if an impossible value was drawn.
    return math.inf if log_e == math.inf else math.exp(min(log_e, 700.0))


def _excluded(event: str, count: int, seen: CellCounts) -> FitWitness:
    return FitWitness(
        event=event, count=count, draws=seen.draws, expected=(0, 0), probability=(0.0, 0.0)
    )


def witness(cells: FitCells, seen: CellCounts, alpha: Fraction) -> FitWitness:
    r"""The cell, half-line or residue class whose count is furthest from its probability.

    The distance is the likelihood ratio of the count. This describes the draws and is not a test.
    """
    last = len(cells) - 1
    inner = range(1, last)
    spans = [(i, i) for i in range(last + 1)]
    spans += [span for i in inner for span in ((0, i), (i, last))]
    first, end = np.array(spans).T
    sums = (np.append(0, np.cumsum(each)) for each in (seen.counts, cells.lower, cells.upper))
    count, low, high = (upto[end + 1] - upto[first] for upto in sums)
    # Sums over cells have rounding errors: round outwards.
    low, high = np.maximum(low - _ROUNDING, 0.0), np.minimum(high + _ROUNDING, 1.0)
    low[: last + 1], high[: last + 1] = cells.lower, cells.upper
    words = [partial(cells.words, *span) for span in spans]
    for modulus, counts in zip(cells.moduli, seen.residues, strict=True):
        least, most = cells.residue(modulus)
        count, low = np.append(count, counts), np.append(low, [least] * modulus)
        high = np.append(high, [most] * modulus)
        words += [partial("x mod {} = {}".format, modulus, r) for r in range(modulus)]
    share = count / seen.draws
    p = np.clip(share, low, high)
    best = int(np.argmax(rel_entr(share, p) + rel_entr(1 - share, 1 - p)))
    tail, least, most = float(alpha) / 2, float(low[best]), float(high[best])
    fewest = int(stats.binom.ppf(tail, seen.draws, least))
    largest = int(stats.binom.isf(tail, seen.draws, most))
    return FitWitness(
        event=words[best](),
        count=int(count[best]),
        draws=seen.draws,
        expected=(fewest, largest),
        probability=(least, most),
    )


def resolution(cells: FitCells, draws: int, alpha: Fraction, *, sequential: bool) -> float:
    r"""The relative error of the mean absolute deviation that 95 of 100 fits would refute.

    An estimate by the normal approximation, for laws that are wrong by a change of scale; infinite
    for a law with constant distance from its mean.
    """
    if sequential:
        # Tilts double, so that some tilt is 2/3 to 4/3 of the best one and loses at most a ninth of
        # the gain.
        share = TILTED_WEIGHT / (2 * len(cells.scores) * len(TILTS)) if len(cells.scores) else 1.0
        needed = math.sqrt(2 * (log_bar(alpha) - math.log(share)) * 9 / 8)
    else:
        tests = max(1, 2 * len(cells.scores))
        by_simulation = float(stats.norm.isf(float(alpha) * WEIGHTS["directed"] / tests))
        by_bound = math.sqrt(2 * (log_bar(alpha) + math.log(tests / WEIGHTS["tilted"])))
        reached = float(alpha) * WEIGHTS["directed"] >= 2 / (1 + SIMULATIONS)
        needed = by_simulation if reached else by_bound
    return (needed + float(stats.norm.ppf(_DETECTED))) * cells.spread / math.sqrt(draws)
