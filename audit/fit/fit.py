r"""The goodness-of-fit test of an audit: does a sampler draw from the claimed law?

The integers are divided into cells (intervals), which depend only on the law and the number of
draws. The draws in each cell are counted, and compared with the law by five tests with fixed
weights:

    directed   the largest of three standardised scores (position, distance from the mean, squared
               distance), by Monte Carlo: detects a wrong scale or location
    omnibus    the likelihood-ratio statistic G of all cells, by Monte Carlo
    tilted     the scores of "directed" by Chernoff's bound, for an alpha out of Monte Carlo's reach
    cells      the counts of every cell, and of the values up to or from every cell, by exact
               binomial tails
    residues   the draws modulo 2, 3 and 5, for a wide law, by exact binomial tails

The combined p-value is the minimum of p_i / w_i, where test i has p-value p_i and weight w_i. A
single draw of a value with probability 0 refutes the law. With ``sequential=True``, the law is
tested during the draws (:mod:`audit.fit.statistics`). Proofs: ``docs/proofs/exact_audits.md``.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from audit.audit_spec import AuditSpec
from audit.claims import LOOKS, LayerRun, evidence, level_upper, log_bar
from audit.errors import TargetFailed
from audit.fit.statistics import (
    CellCounts,
    FitCells,
    FitWitness,
    Integers,
    cells_of,
    excluded,
    fit_p_values,
    joined,
    log_wealth,
    log_wealths,
    resolution,
    witness,
)
from audit.formats.result import Result, Statement, computed, fact, format_share
from audit.outputs.time_limit import Watchdog, stdout_to_stderr
from audit.statistical_tests.sample_outcome import versions
from audit.targets.target import Block, Catalogued, Target, seeded_rng
from audit.targets.target_syntax import takes_ours
from audit.verdict_words_and_exit_codes import INTERRUPTED, VERDICTS
from dpcore.errors import InvalidParameter, Unrepresentable
from dpcore.noise import Noise
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, rational
from dpcore.numbers.rounding import up
from dpcore.parse_noise import write_noise
from dpcore.sampling.rng import SeededRng

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
class FitReport(Result):
    r"""The report of a goodness-of-fit test: does the sampler draw from the claimed law?

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
    r"""Test whether ``sampler`` draws from the law ``noise``.

    The test uses ``runs`` draws, or at most ``runs`` draws if ``sequential`` is true. A sampler is
    one of:

    - a function f(n, rng) that returns n integers (fastest); rng is a numpy Generator, or a
      SeededRng of dpcore if it is annotated rng: Rng;
    - a function f(rng) or f() that returns one integer;
    - a :class:`Noise`, or a mapping from integers to masses;
    - an object with scipy's method ``rvs(size=, random_state=)``;
    - a target (:mod:`audit.targets.target`). A target of the catalogue runs on its dataset A, and
      any other target on the number 0 as its dataset.

    If the sampler fails, the report contains ``error`` and no verdict. ``timeout`` limits each call
    and ``deadline`` the whole fit, in seconds. ``target`` is the name of the sampler in the report.
    The probability of a false alarm, over the draws and the simulations, is at most ``alpha``. If
    no ``seed`` is given, the report states the random seed that was used. Tests of several samplers
    against one law with the same seed share their simulations, so their errors are dependent.
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
    draws, simulations = np.random.SeedSequence(seed).spawn(2)
    source = sampler_of(sampler, draws, timeout=timeout)
    source = source if target is None else replace(source, spelling=target)
    start = _Watched(noise=noise, cells=cells_of(noise, runs), alpha=level, sequential=sequential)
    until = math.inf if deadline is None else time.monotonic() + deadline
    return _report(source, _draw(source, start, runs, until), seed, simulations)


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
    source: Sampler, watched: _Watched, seed: int, simulations: np.random.SeedSequence
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
        found = fit_p_values(cells, seen, np.random.default_rng(simulations))
        p_value = 0.0 if impossible else joined(found)
        refuted = p_value <= round_down(alpha)
    verdict: FitVerdict = "refuted" if refuted else "not_refuted"
    return replace(
        report,
        verdict=None if watched.error is not None else verdict,
        p_value=p_value,
        e_value=e_value,
        evidence=found,
        witness=excluded(*impossible, seen) if impossible else witness(cells, seen, alpha),
        resolution=resolution(cells, seen.draws, alpha, sequential=watched.sequential),
    )


_CUT: Final = ("the target failed", INTERRUPTED, "the deadline was reached")
_CUT_SHORT: Final = (
    "ended before its planned draws: the confidence holds only if the draws did not influence when "
    "it ended"
)


def _grouped(cells: FitCells, seen: CellCounts) -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for name, value in log_wealths(cells, seen):
        parts.setdefault(name, []).append(value)
    return {name: _exp(float(logsumexp(values))) for name, values in parts.items()}


def _exp(log_e: float) -> float:
    # Clipped to a finite float; infinite only if an impossible value was drawn.
    return math.inf if log_e == math.inf else math.exp(min(log_e, 700.0))


# -- samplers -----------------------------------------------------------------------------------

_MANY: Final = 1 << 20
# For samplers that return one draw per call: few draws at a time, so that the draws before a
# failure are not lost.
_FEW: Final = 1 << 10
_FORMS: Final = (
    "must be a callable f(n, rng), f(rng) or f(), a Noise, a mapping from outcomes to "
    "probabilities, or an object with a method rvs"
)
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    r"""A sampler of integers: ``function(n)`` draws n values, where n must be at most ``piece``."""

    spelling: str
    function: Callable[[int], Any]
    watchdog: Watchdog
    piece: int = _MANY

    def draw(self, n: int) -> Integers:
        r"""Draw n values. Values beyond the range of int64 are replaced by the nearest int64."""
        returned = self.watchdog.call(lambda: self.function(n), self.spelling)
        try:
            draws: NDArray[Any] = np.asarray(returned)
        except (ValueError, TypeError, OverflowError):
            raise TargetFailed(self.spelling, "did not return an array of integers") from None
        if returned is None:
            raise TargetFailed(self.spelling, "returned nothing")
        if draws.shape != (n,):
            reason = f"returned an array of shape {draws.shape} instead of ({n},)"
            raise TargetFailed(self.spelling, reason)
        match draws.dtype.kind:
            case "i":
                return np.asarray(draws, dtype=np.int64)
            case "u":
                return np.asarray(np.minimum(draws, np.uint64(_LARGEST)), dtype=np.int64)
            case "O":
                return self._clipped(draws.tolist())
        reason = f"returned {draws.dtype} values such as {draws[0]!s}: integers are required"
        raise TargetFailed(self.spelling, reason)

    def _clipped(self, values: list[Any]) -> Integers:
        for x in values:
            if isinstance(x, bool) or not isinstance(x, int | np.integer):
                reason = f"returned {x!r}: integers are required"
                raise TargetFailed(self.spelling, reason)
        return np.array([min(max(int(x), _LEAST), _LARGEST) for x in values], dtype=np.int64)


def sampler_of(
    sampler: Any, seed: np.random.SeedSequence, *, timeout: float | None = None
) -> Sampler:
    r"""Convert a sampler of any kind listed in :func:`fit` to a :class:`Sampler`."""
    watchdog = Watchdog(timeout)
    rng = np.random.default_rng(seed)
    name, piece = _name(sampler), _MANY
    function: Callable[[int], Any]
    if isinstance(sampler, Noise):
        name, function = repr(sampler), _of_noise(sampler, seeded_rng(seed))
    elif isinstance(sampler, Target):
        name, function = sampler.spelling, _of_target(sampler, seed, timeout)
    elif isinstance(sampler, Mapping):
        name, function = "a pmf", _of_pmf(sampler, rng)
    elif callable(rvs := getattr(sampler, "rvs", None)):
        function = lambda n: rvs(size=n, random_state=rng)  # noqa: E731 - a def would only be longer
    elif callable(sampler):
        function, piece = _of_function(sampler, seed, watchdog)
    else:
        raise InvalidParameter("sampler", sampler, _FORMS)
    return Sampler(spelling=name, function=function, watchdog=watchdog, piece=piece)


def _name(sampler: Any) -> str:
    return getattr(sampler, "__qualname__", None) or type(sampler).__qualname__


def _of_noise(noise: Noise, rng: SeededRng) -> Callable[[int], Any]:
    def draw(n: int) -> Any:
        try:
            return noise.sample(n, rng=rng)
        except Unrepresentable:
            return np.array([noise.sample(rng=rng) for _ in range(n)], dtype=object)

    return draw


def _of_pmf(masses: Mapping[Any, Any], rng: np.random.Generator) -> Callable[[int], Any]:
    exact = {x: rational(f"mass of {x!r}", mass) for x, mass in masses.items()}
    if any(isinstance(x, bool) or not isinstance(x, int) for x in exact):
        raise InvalidParameter("sampler", list(exact), "the outcomes of a pmf must be integers")
    if any(mass < 0 for mass in exact.values()) or sum(exact.values()) != 1:
        raise InvalidParameter("sampler", masses, "the masses of a pmf must be >= 0 and sum to 1")
    values = np.array(list(exact), dtype=object)
    return lambda n: rng.choice(values, size=n, p=[float(mass) for mass in exact.values()])


def _of_target(
    target: Target, seed: np.random.SeedSequence, timeout: float | None
) -> Callable[[int], Any]:
    pair = target.subject.pair if isinstance(target, Catalogued) else target.check((0, 0))

    def draw(n: int) -> Any:
        mixing, *seeds = seed.spawn(3)
        block = Block(
            pair=pair,
            worlds=np.zeros(n, dtype=np.bool_),
            seeds=(seeds[0], seeds[1]),
            mixing=mixing,
            timeout=timeout,
        )
        pieces = [list(piece) for piece in target.draw(block)]
        outputs = [x for piece in pieces for x in piece]
        if target.lines:
            # An array of objects, because numpy would convert integers beyond its types to floats.
            return np.array([_of_line(target.spelling, line) for line in outputs], dtype=object)
        return np.array(outputs)

    return draw


def _of_line(spelling: str, line: str) -> int:
    try:
        return int(line)
    except ValueError:
        reason = f"wrote {line[:60]!r}: one integer per line is required"
        raise TargetFailed(spelling, reason) from None


def _of_function(
    function: Callable[..., Any], seed: np.random.SeedSequence, watchdog: Watchdog
) -> tuple[Callable[[int], Any], int]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidParameter("sampler", _name(function), _FORMS) from None
    rng: Any = seeded_rng(seed) if takes_ours(function, signature) else np.random.default_rng(seed)
    if _takes(signature, n=1, rng=rng):
        return lambda n: function(n=n, rng=rng), _MANY
    if _takes(signature, 1, rng):
        return lambda n: function(n, rng), _MANY
    if _takes(signature, rng=rng):
        return _one_by_one(lambda: function(rng=rng), watchdog), _FEW
    if _takes(signature):
        return _one_by_one(function, watchdog), _FEW
    raise InvalidParameter("sampler", f"{_name(function)}{signature}", _FORMS)


def _takes(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _one_by_one(once: Callable[[], Any], watchdog: Watchdog) -> Callable[[int], Any]:
    def draw(n: int) -> Any:
        draws = np.empty(n, dtype=object)
        for i in range(n):
            watchdog.restart()
            draws[i] = once()
        return draws

    return draw
