r"""Audit a training step of DP-SGD: does it sample, clip, add noise and divide as stated?

A step is an object with two methods, or a class of such objects that needs no arguments:

    sample(rng)              returns the next batch: the numbers of its records, in 0..records-1
    update(gradients, rng)   returns the released vector for per-example gradients, an array of
                             shape (batch, dimension), which may contain inf and nan

``rng`` is a numpy Generator. A step with its own source of randomness must seed this source from
``rng``, because clipping and division are measured with two updates that have the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from importlib import import_module
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from audit.claims import level
from audit.errors import TargetFailed
from audit.fit.statistics import (
    cells_of,
    fit_p_values,
    joined,
    most_extreme,
    resolution,
    witness,
)
from audit.outputs.time_limit import RAISED, Watchdog, failure, stdout_to_stderr
from audit.statistical_tests.sample_outcome import versions
from audit.training.step_report import Check, CheckVerdict, Sampling, Stated, StepReport
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.numbers.enclosure import round_down, round_up
from dpcore.numbers.parameter import RationalLike, integer
from dpcore.numbers.rounding import up

LIBRARIES: Final = {
    "jax-privacy": ("audit.training.opacus_and_jax_adapters", "JaxPrivacyStep"),
    "opacus": ("audit.training.opacus_and_jax_adapters", "OpacusStep"),
}
r"""The training steps of other libraries, by name: the module and the name of the class."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SHARES: Final = 8
r"""The number of statistical checks, which share alpha: five of sampling and three of noise."""

_FEWEST: Final = 3
r"""The least number of updates with zero gradients: with fewer updates, independent coordinates
may be equal because of rounding.
"""

_UPDATES: Final = 500
_ENTRIES: Final = 1 << 25
r"""Fewer than 500 updates with zero gradients are made if 500 would exceed this many entries."""

_GRID: Final = 1 << 20
r"""Noise is rounded to multiples of sigma/2^20, which are too fine to affect the test."""

_ROUNDING: Final = 1 + 1e-9
_TOLERANCE: Final = 1e-3
_LARGE: Final = 1e4
_PLANTED: Final = (1.0, 1.5, 10.0, _LARGE, 1e8)


class TrainingStep(Protocol):
    r"""The methods that a training step must have to be audited by :func:`dpsgd`."""

    def sample(self, rng: np.random.Generator) -> ArrayLike:
        r"""Return the numbers of the records in the next batch."""

    def update(self, gradients: Floats, rng: np.random.Generator) -> ArrayLike:
        r"""Return the released vector, of shape (dimension,), for gradients (batch, dimension)."""


def dpsgd(  # noqa: PLR0913 - each is an option of the command
    step: Any,
    *,
    records: int,
    rate: RationalLike,
    noise_multiplier: RationalLike,
    clip: RationalLike,
    sampling: Sampling = "poisson",
    dimension: int = 500,
    batches: int = 400,
    draws: int = 20_000,
    alpha: RationalLike = "0.001",
    seed: int = 0,
    timeout: float | None = 60.0,
    target: str = "step",
) -> StepReport:
    r"""Audit a step of DP-SGD: does it sample, clip, add noise and divide as stated?

    ``step`` is a :class:`TrainingStep`, a class of such steps, or the name of a library whose step
    is audited: "jax-privacy" (extra ``bench``) or "opacus" (extra ``opacus``). The stated
    parameters (:class:`Stated`) are the number of ``records``, the probability ``rate`` that a
    record enters a batch, the ``noise_multiplier`` and the clipping norm ``clip``. The audit draws
    ``batches`` batches, uses gradients of ``dimension`` coordinates, and compares about ``draws``
    coordinates of noise with the Gaussian law. ``timeout`` limits each call, in seconds. If the
    step is as stated, some statistical check fails with probability at most ``alpha``. The other
    checks are deterministic, and a fault is a counterexample.

    >>> class Step:
    ...     def sample(self, rng):
    ...         return np.flatnonzero(rng.random(1000) < 0.1)
    ...
    ...     def update(self, gradients, rng):
    ...         finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    ...         gradients = np.where(finite, gradients, 0.0)
    ...         norms = np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1.0)
    ...         noise = rng.normal(size=gradients.shape[1])
    ...         return ((gradients / norms).sum(axis=0) + noise) / max(1, len(gradients))
    >>> report = dpsgd(Step, records=1000, rate="0.1", noise_multiplier=1, clip=1, seed=1)
    >>> [check.name for check in report.checks if check.failed]
    ['noise', 'coordinates', 'each update', 'clipping', 'normaliser']

    Raises :class:`InvalidParameter` if an argument is invalid, and :class:`TargetFailed` if the
    step fails.
    """
    stated = Stated(
        records=records, rate=rate, noise_multiplier=noise_multiplier, clip=clip, sampling=sampling
    )
    exact = level("alpha", alpha)
    integer("dimension", dimension, at_least=2, at_most=10**6)
    integer("batches", batches, at_least=2, at_most=10**5)
    integer("draws", draws, at_least=100, at_most=10**8)
    calls = max(_FEWEST, -(-draws // dimension))
    seed = integer("seed", seed, at_least=0)
    with stdout_to_stderr(), Watchdog(timeout) as watchdog:
        caller = _Caller(_make_step(step, stated, target), target, watchdog, stated, seed)
        drawn = [caller.batch(k) for k in range(batches)]
        checks = [
            *batch_checks(drawn, stated, exact / _SHARES, np.random.default_rng([seed, 3])),
            *caller.noise(calls, dimension, exact / _SHARES),
            *caller.replayed(dimension),
        ]
    return StepReport(
        target=target,
        stated=stated,
        checks=tuple(checks),
        alpha=exact,
        batches=batches,
        updates=caller.updates,
        seed=seed,
        versions=versions(),
    )


def _make_step(step: Any, stated: Stated, target: str) -> Any:
    library = LIBRARIES.get(step) if isinstance(step, str) else None
    try:
        if library is not None:
            module, name = library
            return getattr(import_module(module), name)(stated)
        made = step() if isinstance(step, type) else step
    except RAISED as error:
        if library is not None and isinstance(error, InvalidParameter):
            raise
        raise failure(target, error) from error
    for name in ("sample", "update"):
        if not callable(getattr(made, name, None)):
            reason = f"must have a method {name}: see dpcore audit dpsgd --help"
            raise InvalidParameter("step", target, reason)
    return made


def _check(name: str, statement: str, *, fault: bool) -> Check:
    return Check(name=name, verdict="fault" if fault else "passed", statement=statement)


def _tested(name: str, statement: str, p_value: float | None, *, refuted: bool) -> Check:
    verdict: CheckVerdict = "refuted" if refuted else "passed"
    return Check(name=name, verdict=verdict, statement=statement, p_value=p_value)


class _Caller:
    # Calls the step with separate random numbers for each call, and parses the results.

    def __init__(
        self, step: Any, target: str, watchdog: Watchdog, stated: Stated, seed: int
    ) -> None:
        self.step, self.target, self.watchdog = step, target, watchdog
        self.stated, self.seed, self.updates = stated, seed, 0
        self.batch_rng = np.random.default_rng([seed, 0])
        self.size = max(1, round(stated.expected))
        # The factor that converts an update to a sum of gradients in units of the clipping norm.
        self.unit = float(stated.expected / stated.clip)

    def batch(self, number: int) -> NDArray[np.int64]:
        # A copy, because a step may reuse one array for all batches.
        given = self.watchdog.call(lambda: np.array(self.step.sample(self.batch_rng)), self.target)
        if given.size == 0:
            return np.zeros(0, dtype=np.int64)
        whole = given.ndim == 1 and np.issubdtype(given.dtype, np.integer)
        if not whole or given.min() < 0 or given.max() >= self.stated.records:
            last = self.stated.records - 1
            reason = f"sample() must return record numbers, integers in 0..{last} (not a mask)"
            raise TargetFailed(self.target, reason, run=number + 1)
        return np.asarray(given, dtype=np.int64)

    def update(self, gradients: Floats, *key: int) -> Floats:
        self.updates += 1
        rng = np.random.default_rng([self.seed, 1, *key])
        found = self.watchdog.call(
            lambda: np.asarray(self.step.update(gradients.copy(), rng)), self.target
        )
        if found.dtype.kind not in "iuf":
            reason = f"update() must return an array of numbers, not of type {found.dtype}"
            raise TargetFailed(self.target, reason)
        given: Floats = found.astype(np.float64)
        if given.shape != gradients.shape[1:]:
            many = gradients.shape[1]
            reason = f"update() must return an array of shape ({many},), not {given.shape}"
            raise TargetFailed(self.target, reason)
        return given

    @property
    def sizes(self) -> list[int]:
        return sorted({1, max(1, self.size // 2), self.size, 2 * self.size})

    def noise(self, calls: int, dimension: int, level: Fraction) -> Iterator[Check]:
        # An update with zero gradients consists only of noise, for every size of a batch.
        sizes = [self.size] if self.stated.sampling == "fixed" else self.sizes
        each = (np.zeros((sizes[k % len(sizes)], dimension)) for k in range(calls))
        drawn = np.stack([self.update(zeros, k) for k, zeros in enumerate(each)])
        factor = self.unit / float(self.stated.noise_multiplier)
        standard = drawn * factor
        fault = _same_noise(drawn)
        if fault:
            yield _check("noise", fault, fault=True)
        else:
            yield self._law_of(standard.ravel(), level)
        yield _coordinates(standard, round_down(level))
        few = np.zeros((sizes[0], dimension))
        count = max(calls, min(_UPDATES, _ENTRIES // few.size))
        more = (self.update(few, k) * factor for k in range(calls, count))
        yield _each_update(chain(standard, more), round_down(level), round_up(level * _SHARES))

    def _law_of(self, standard: Floats, level: Fraction) -> Check:
        values = np.rint(np.clip(standard, -1e12, 1e12) * _GRID).astype(np.int64)
        cells = cells_of(DiscreteGaussian(sigma_squared=_GRID * _GRID), len(values))
        _, seed = np.random.SeedSequence(self.seed).spawn(2)
        p_value = joined(fit_p_values(cells, cells.count(values), np.random.default_rng(seed)))
        missed = resolution(cells, len(values), level, sequential=False)
        spread = float(np.sqrt(np.mean(standard**2)))
        statement = (
            f"{len(values):,} coordinates of noise have {spread:.4g} times the stated standard "
            f"deviation; {100 * missed:.2g}% more or less would be detected"
        )
        return _tested("noise", statement, p_value, refuted=p_value <= round_down(level))

    def replayed(self, dimension: int) -> Iterator[Check]:
        # With the same noise twice, the difference is the effect of a gradient.
        if self.stated.sampling == "poisson":
            yield self._empty(dimension)
        one, again = (self.update(np.zeros((self.size, dimension)), 0) for _ in range(2))
        if not np.array_equal(one, again, equal_nan=True):
            statement = (
                "two updates with the same random numbers differ: seed the source of the noise "
                "from rng, and return the update before momentum or averages are applied to it"
            )
            for name in ("clipping", "normaliser", "inf and nan"):
                yield Check(name=name, verdict="nothing_measured", statement=statement)
            return
        yield from self._planted(dimension)

    def _empty(self, dimension: int) -> Check:
        # An update of an empty batch needs noise, too.
        try:
            found = self.update(np.zeros((0, dimension)), 0)
        except TargetFailed as error:
            return _check("empty batch", f"an update of an empty batch {error.reason}", fault=True)
        noisy = bool(np.isfinite(found).all()) and bool(found.any())
        statement = f"its update has {'finite' if noisy else 'no finite'} noise"
        return _check("empty batch", statement, fault=not noisy)

    def _moved(self, before: Floats, gradients: Floats, planted: Floats, place: int = 0) -> float:
        # The norm of the change of the update, in units of the clipping norm, if the zero gradient
        # at ``place`` is replaced by ``planted``.
        with_it = gradients.copy()
        with_it[place] = planted
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(self.update(with_it, 0) - before)) * self.unit

    def _planted(self, dimension: int) -> Iterator[Check]:
        clip = float(self.stated.clip)
        rng = np.random.default_rng([self.seed, 2])
        others = rng.normal(size=(self.size, dimension))
        others *= clip / 2 / np.linalg.norm(others, axis=1, keepdims=True)
        others[_places(self.size)] = 0.0
        one, even, mixed = np.zeros(dimension), np.ones(dimension), rng.normal(size=dimension)
        one[dimension // 2] = -1.0
        beside = (*(np.zeros((size, dimension)) for size in self.sizes), others)
        yield self._bounded(
            "clipping",
            beside,
            {
                f"a gradient of norm {factor:g} clip, {name}": shape
                * (factor * clip / float(np.linalg.norm(shape)))
                for name, shape in (("one coordinate", one), ("all alike", even), ("mixed", mixed))
                for factor in _PLANTED
            },
        )
        yield self._normaliser(dimension)
        # Try inf and nan last, because a step that keeps state may not recover from them.
        yield self._bounded(
            "inf and nan",
            beside,
            {
                f"a gradient of {value}, {name}": np.where(shape, value, 0.0)
                for name, shape in (("one coordinate", one), ("all alike", even))
                for value in (math.inf, -math.inf, math.nan)
            },
        )

    def _bounded(self, name: str, beside: tuple[Floats, ...], planted: dict[str, Floats]) -> Check:
        worst, what = 0.0, ""
        for gradients in beside:
            before, places = self.update(gradients, 0), _places(len(gradients))
            for k, (named, gradient) in enumerate(planted.items()):
                try:
                    moved = self._moved(before, gradients, gradient, places[k % len(places)])
                except TargetFailed as error:
                    return _check(name, f"{named}: the update {error.reason}", fault=True)
                if not math.isfinite(moved):
                    return _check(name, f"{named}: the update is not finite", fault=True)
                if moved > worst:
                    worst, what = moved, named
        statement = f"{what} changes the update by {worst:.6g} clip / (rate x records)"
        statement = statement if what else "no planted gradient changes the update"
        return _check(name, statement, fault=worst > 1 + _TOLERANCE)

    def _normaliser(self, dimension: int) -> Check:
        # Plant a gradient within the norm in batches of several sizes.
        planted = np.zeros(dimension)
        planted[0] = float(self.stated.clip) / 2
        zeros = [np.zeros((size, dimension)) for size in self.sizes]
        shares = [2 * self._moved(self.update(some, 0), some, planted) for some in zeros]
        if not all(map(math.isfinite, shares)):
            statement = "a gradient within the norm makes the update infinite or not a number"
            return _check("normaliser", statement, fault=True)
        if max(shares) > (1 + _TOLERANCE) * min(shares):
            listed = ", ".join(
                f"{share:.4g} in a batch of {size:,}"
                for size, share in zip(self.sizes, shares, strict=True)
            )
            statement = f"the contribution of a gradient depends on the size of the batch: {listed}"
            return _check("normaliser", statement, fault=True)
        share, expected = shares[0], float(self.stated.expected)
        # A step may also scale small gradients up to the clipping norm. Then a small gradient
        # changes the update by more than its norm, but a large gradient by the clipping norm.
        large = planted * (2 * _LARGE)
        if share > 1 + _TOLERANCE and all(
            abs(self._moved(self.update(some, 0), some, large) - 1) <= _TOLERANCE for some in zeros
        ):
            statement = (
                f"a gradient of half the norm changes the update by {share / 2:.4g} clip / (rate x "
                "records), a large one by 1"
            )
            return _check("normaliser", statement, fault=share > 2 * (1 + _TOLERANCE))
        statement = (
            f"a gradient within the norm is divided by {expected / share:.6g} in every batch; "
            f"rate x records = {expected:.6g}"
            if share
            else "a gradient within the clipping norm adds nothing"
        )
        return _check("normaliser", statement, fault=abs(share - 1) > _TOLERANCE)


def _places(size: int) -> list[int]:
    # The positions of planted gradients: a step may treat the first or the last differently.
    return sorted({0, size // 2, size - 1})


def _same_noise(drawn: Floats) -> str:
    # Describe a fault, or return "". A fault is noise that is not finite, noise that two updates
    # have in common up to order and signs, or noise that two coordinates share in every update.
    if not np.isfinite(drawn).all():
        return "an update of zero gradients is not finite"
    sizes = np.abs(drawn)
    if not sizes.any():
        return ""
    if len({one.tobytes() for one in np.sort(sizes, axis=1)}) < len(drawn):
        return "two updates added the same noise"
    seen: dict[bytes, int] = {}
    for i in np.flatnonzero(sizes.any(axis=0)).tolist():
        first = seen.setdefault(sizes[:, i].tobytes(), i)
        if first != i:
            return f"coordinates {first:,} and {i:,} have the same noise in every update"
    return ""


def _coordinates(standard: Floats, level: float) -> Check:
    # The squares of the noise of a coordinate sum to a chi-square variable. The last column is the
    # sum of all coordinates, divided by the square root of their number, for which this also holds.
    calls, dimension = standard.shape
    with np.errstate(all="ignore"):
        total = standard.sum(axis=1, keepdims=True) / math.sqrt(dimension)
        sums = (np.hstack((standard, total)) ** 2).sum(axis=0)
    worst, spread, p_value = _most_extreme(sums, calls)
    name = f"coordinate {worst:,}" if worst < dimension else "the sum of all coordinates"
    statement = (
        f"the noise of {name} has {spread:.4g} times the stated standard "
        f"deviation in {calls:,} updates; all others are closer to it"
    )
    return _tested("coordinates", statement, p_value, refuted=p_value <= level)


def _each_update(updates: Iterable[Floats], level: float, alpha: float) -> Check:
    # Like ``_coordinates``, for each update and for the sum of all updates. This detects noise that
    # is missing or smaller in some steps, if one of these steps is among the updates.
    squares: list[float] = []
    total = np.zeros(1)
    with np.errstate(all="ignore"):
        for one in updates:
            squares.append(float((one**2).sum()))
            total = total + one
        calls, dimension = len(squares), len(total)
        worst, spread, p_value = _most_extreme([*squares, (total**2).sum() / calls], dimension)
    name = f"update {worst + 1:,}" if worst < calls else "the sum of all updates"
    # If noise is missing in a fraction ``missed`` of the steps, the probability that all updates
    # have noise is at most (1 - missed)^calls = alpha.
    missed = 100 * -math.expm1(math.log(alpha) / calls)
    statement = (
        f"the noise of {name} has {spread:.4g} times the stated standard deviation, the largest "
        f"deviation of {calls:,} updates; noise that is missing in fewer than "
        f"{up(missed, 2)}% of the steps could have gone unnoticed"
    )
    return _tested("each update", statement, p_value, refuted=p_value <= level)


def _most_extreme(sums: Sequence[float] | Floats, freedom: int) -> tuple[int, float, float]:
    # The index of the least probable sum of ``freedom`` squares, the standard deviation there, and
    # the p-value of all sums together.
    sums = np.nan_to_num(np.asarray(sums), nan=math.inf)
    tails = np.minimum(stats.chi2.cdf(sums, freedom), stats.chi2.sf(sums, freedom))
    worst = int(np.argmin(tails))
    p_value = min(1.0, 2 * len(sums) * float(tails[worst]) * _ROUNDING)
    return worst, math.sqrt(sums[worst] / freedom), p_value


def batch_checks(
    batches: Sequence[Integers], stated: Stated, level: Fraction, rng: np.random.Generator
) -> Iterator[Check]:
    r"""Check the sampling of batches, each check at ``level``; ``rng`` is for simulations."""
    twice = sum(len(np.unique(batch)) < len(batch) for batch in batches)
    statement = f"{twice:,} of {len(batches):,} batches contain a record more than once"
    yield _check("no repeats", statement, fault=twice > 0)
    fixed = stated.sampling == "fixed"
    found = _fixed(batches, stated) if fixed else _poisson(batches, stated, level, rng)
    for name, p_value, statement in found:
        p = min(1.0, p_value * _ROUNDING)
        yield _tested(name, statement, p, refuted=p <= round_down(level))


Found = Iterator[tuple[str, float, str]]


def _poisson(
    batches: Sequence[Integers], stated: Stated, level: Fraction, rng: np.random.Generator
) -> Found:
    n, rate, rounds = stated.records, float(stated.rate), len(batches)
    sizes = np.array([len(batch) for batch in batches])
    counts = _counts(batches, n)
    total = int(sizes.sum())
    yield (
        "rate",
        _two_sided(total, n * rounds, rate),
        f"a record is in a batch with frequency {total / (n * rounds):.5g}; stated {rate:.5g}",
    )
    for name, values, trials, what in (
        ("batch sizes", sizes, n, "batches have a size"),
        ("record counts", counts, rounds, "records have a count"),
    ):
        law = Binomial(trials=trials, probability=stated.rate)
        cells = cells_of(law, len(values))
        seen = cells.count(values)
        far, p_value = witness(cells, seen, level), joined(fit_p_values(cells, seen, rng))
        usual = len(values) * far.probability[0]
        yield (
            name,
            p_value,
            f"{far.count:,} of {far.draws:,} {what} {far.event}; {usual:,.4g} expected",
        )
    yield _most_extreme_record(counts, rounds, rate)
    both, pairs = _overlap(batches), rounds // 2
    p_value = _two_sided(both, n * pairs, rate * rate)
    yield "overlap", p_value, _overlap_words(both, pairs, n * pairs * rate * rate)


def _fixed(batches: Sequence[Integers], stated: Stated) -> Found:
    n, size, rounds = stated.records, int(stated.expected), len(batches)
    other = sum(len(batch) != size for batch in batches)
    yield (
        "batch sizes",
        0.0 if other else 1.0,
        f"{other:,} of {rounds:,} batches have a size other than {size:,}",
    )
    yield _most_extreme_record(_counts(batches, n), rounds, size / n)
    both, pairs = _overlap(batches), rounds // 2
    p_value = _chernoff(both, size * pairs, size / n)
    yield "overlap", p_value, _overlap_words(both, pairs, size * pairs * size / n)


def _counts(batches: Sequence[Integers], records: int) -> Integers:
    # The number of batches that contain each record.
    members = [np.unique(batch) for batch in batches]
    return np.bincount(np.concatenate(members), minlength=records)


def _overlap(batches: Sequence[Integers]) -> int:
    pairs = zip(batches[::2], batches[1::2], strict=False)
    return sum(len(np.intersect1d(one, other)) for one, other in pairs)


def _overlap_words(both: int, pairs: int, expected: float) -> str:
    return (
        f"{both:,} times a record is in two consecutive batches ({pairs:,} pairs of batches); "
        f"{expected:,.0f} expected if batches were independent"
    )


def _most_extreme_record(counts: Integers, rounds: int, rate: float) -> tuple[str, float, str]:
    worst, p_value = most_extreme(rounds, counts, rate, rate)
    statement = (
        f"record {worst:,} is in {counts[worst]:,} of {rounds:,} batches; "
        f"{rounds * rate:,.4g} expected; it is the most extreme record"
    )
    return "each record", p_value, statement


def _two_sided(hits: int, trials: int, rate: float) -> float:
    return most_extreme(trials, np.array([hits]), rate, rate)[1]


def _chernoff(hits: int, trials: int, rate: float) -> float:
    share = hits / trials if trials else rate
    parts = ((share, rate), (1 - share, 1 - rate))
    divergence = sum(p * math.log(p / q) if p else 0.0 for p, q in parts)
    return min(1.0, 2 * math.exp(-trials * max(divergence, 0.0)))
