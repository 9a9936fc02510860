r"""Audit one training run with canaries: how well do their scores predict which were included?

A canary is a training record that is made for the audit. Each of m canaries is included in the
training data with probability 1/2. The training runs once, and each canary gets a score. Then r
guesses are made: by default, half of them state that the canaries with the highest scores were
included, and the other half that those with the lowest scores were excluded. The number of right
guesses is compared with the bound under the claim
(:mod:`audit.statistical_tests.one_run_canaries`).

By default, up to three values of r share the significance level. They depend only on the number of
canaries, the claim and the level. A small r, with half of the level, is best if few scores are
informative; a quarter of the canaries and all of them are best if many are. Scores are read from
the columns ``score`` and ``included`` of a CSV file, or from arrays with these names in an ``.npz``
file of numpy.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from accounting.guarantees.guarantee import Guarantee
from audit.claims import (
    Claim,
    CurveClaim,
    confidence,
    evidence,
    format_rational,
    level,
    level_upper,
    read_claim,
)
from audit.formats.result import Result, Statement, computed, fact, format_share
from audit.statistical_tests.one_run_canaries import (
    LossLine,
    curve_p_value,
    curve_refuted,
    largest_rejected,
    lines_of,
    one_run_p_value,
)
from audit.statistical_tests.sample_outcome import versions
from audit.verdict_words_and_exit_codes import VERDICTS
from dpcore.cli.files import read_text, rows_of
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.arrays import refuse_masked
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, integer
from dpcore.numbers.rounding import down
from dpcore.spec_syntax import check_word

if TYPE_CHECKING:
    from audit.formats.result import Section


CanaryVerdict: TypeAlias = Literal["refuted", "not_refuted", "nothing_measured"]

PURE: Final = "binomial tail of one run: Steinke, Nasr and Jagielski 2023"
CURVE: Final = "f-DP in one run: Mahloujifar, Melis and Chaudhuri 2024"
ASSUMED: Final = (
    "each canary was included by its own fair coin, tossed before the training",
    "the coins are independent of each other, of the canaries and of the order of scores",
    "the scores come from one run of the claimed mechanism, and depend on coins only through it",
    "one canary is one unit of the claim's neighbouring relation",
    "the numbers of guesses were fixed before scores and coins were seen together",
)
_GUESSED: Final = {
    "both": "the highest scores guessed as included, equally many of the lowest as excluded",
    "included": "the highest scores guessed as included",
    "excluded": "the lowest scores guessed as excluded",
}


class Cell(NamedTuple):
    r"""How many canaries have scores in [``low``, ``high``), or [``low``, ``high``] at the end."""

    low: float
    high: float
    included: int
    excluded: int


def _claim(claim: Claim | CurveClaim | Guarantee) -> dict[str, Any]:
    found: Any = claim.to_json()
    return found if isinstance(found, dict) else {"claim": found}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport(Result):
    r"""The report of an audit with canaries: a verdict, and a lower bound on epsilon."""

    SCHEMA: ClassVar[str] = "dpcore-canaries/1"

    claim: Claim | CurveClaim | Guarantee = fact(
        '{"epsilon", "delta", "relation"} as in dpcore-audit/2; for a curve {"claim", ...}',
        write=_claim,
        kind="dict",
    )
    relation: Relation
    verdict: CanaryVerdict = fact(
        "the verdict on the claim", kind="Literal['refuted', 'not_refuted', 'nothing_measured']"
    )
    epsilon_lower: float = fact("a lower bound on epsilon at at_delta, rounded down")
    at_delta: Fraction = fact("the delta of the bound, exact, as text")
    mu_lower: float | None = fact(
        "for a claim gdp=MU, a lower bound on mu in mu-Gaussian-DP", default=None
    )
    alpha: Fraction = fact(
        "the false-alarm level of the verdict, and of each bound by itself",
        write=level_upper,
        kind="float",
    )
    p_value: float = fact("the p-value of the claim, rounded up")
    included: int
    excluded: int
    guesses: int = fact("the number of guessed canaries")
    guess: str = fact('"both", "included" or "excluded": the kind of guesses')
    right: int = fact("the number of right guesses")
    tried: tuple[tuple[int, int, float], ...] = fact(
        "[[guesses, right, epsilon_lower]] of each number that shares the level; guesses, right "
        "and epsilon_lower above are those of the strongest",
        default=(),
    )
    needed: int | None = fact(
        "the number of canaries that could refute the claim if all guesses were right; null if "
        "the given canaries suffice",
        default=None,
    )
    constant: bool = False
    histogram: tuple[Cell, ...] = fact(
        "[[low, high, included, excluded]]: counts of scores",
        default=(),
    )
    trace: tuple[tuple[int, float], ...] = fact(
        "[[guesses, epsilon_lower]] at other numbers of guesses, if requested; only the number "
        "fixed beforehand gives a bound",
        default=(),
    )
    seed: int = fact("the seed of the order among equal scores")
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @computed("counts", before="guesses")
    def canaries(self) -> dict[str, int]:
        return {"included": self.included, "excluded": self.excluded}

    @computed(
        "a list of sentences: assumptions that no test of the scores can check", before="needed"
    )
    def assumptions(self) -> tuple[str, ...]:
        return ASSUMED

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 claim not refuted, 1 refuted, 4 nothing measured."""
        return VERDICTS[self.verdict].exit_code

    @computed("the theorem behind the verdict", before="assumptions")
    def method(self) -> str:
        return PURE if isinstance(self.claim, Claim) and not self.at_delta else CURVE

    @computed("a list of sentences", before="versions")
    def warnings(self) -> tuple[str, ...]:
        found = []
        if self.constant:
            found.append("all scores are equal: they contain no information about the canaries")
        if self.verdict == "nothing_measured" and not self.constant:
            total = self.included + self.excluded
            more = "no number of canaries" if self.needed is None else f"{self.needed:,} canaries"
            found.append(
                f"{total:,} canaries cannot refute {self.claim} even if all guesses are right: "
                f"{more} could"
            )
        for guesses, right, _ in self.tried:
            # By Hoeffding's inequality, as few right guesses or fewer have probability at most 1e-6
            # if there is no leak.
            missing = 1 - 2 * right / guesses
            if missing > 0 and math.exp(-guesses * missing**2 / 2) < _UNLIKELY:
                found.append(
                    f"only {right:,} of {guesses:,} guesses are right, fewer than by chance: a "
                    "larger score must mean that the model seems to have seen the canary"
                )
                break
        return tuple(found)

    @property
    def subject(self) -> str:
        return "one training run"

    def sections(self) -> Iterator[Section]:
        from audit.formats.result import Section

        yield Section(
            title="Scores",
            columns=("scores from", "to", "included", "excluded"),
            rows=[
                (f"{c.low:.6g}", f"{c.high:.6g}", f"{c.included:,}", f"{c.excluded:,}")
                for c in self.histogram
            ],
        )

    def statement(self) -> Statement:
        words = "violates" if self.refuted else "tested against"
        return Statement(
            verdict=VERDICTS[self.verdict].words,
            about=f"the training {words} {self.claim}",
            rows=tuple(self._rows()),
            style=VERDICTS[self.verdict].style,
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        total = self.included + self.excluded
        sure = f"with {confidence(self.alpha)} confidence"
        at = f" at delta = {format_rational(self.at_delta)}" if self.at_delta else ""
        yield "epsilon", f"at least {down(self.epsilon_lower)}{at}, {sure}"
        if self.mu_lower is not None:
            yield "Gaussian DP", f"mu at least {down(self.mu_lower)}, {sure}"
        sides = f"{self.included:,} included, {self.excluded:,} excluded"
        yield "canaries", f"{total:,}: {sides} ({self.relation.value})"
        *others, last = [f"{size:,}" for size, _, _ in self.tried] or [""]
        level = f"; {', '.join(others)} and {last} guesses share the level" if others else ""
        guessed = f"{self.right:,} of {self.guesses:,} right: {_GUESSED[self.guess]}"
        yield "guesses", guessed + level
        cases = format_share(self.alpha, 6)
        weight = evidence(self.alpha, p_value=self.p_value, e_value=None)
        alarms = f"If the claim were true, at most {cases} such audits would give REFUTED"
        yield "evidence", f"{weight}. {alarms}"
        yield "method", self.method
        for sentence in ASSUMED:
            yield "assumed", sentence
        yield "repeat", f"--seed {self.seed}"


Guessed: TypeAlias = Literal["both", "included", "excluded"]

_CURVE_DELTA: Final = Fraction(1, 100_000)
_CURVE_POINTS: Final = 48
_FEW_POINTS: Final = 12  # for a composed curve, whose points are slow to compute
_RELATIVE: Final = "1e-2"
_END_DELTA: Final = Fraction(1, 10**6)
_SHARE: Final = 16
# The shares of the level for one, two and three numbers of guesses. Shares are powers of 1/2, so
# that the level is divided exactly.
_PARTS: Final = {1: (1.0,), 2: (0.5, 0.5), 3: (0.5, 0.25, 0.25)}
_FEWEST: Final = 32
_MOST_NEEDED: Final = 10**9
_UNFAIR: Final = 1e-9
_UNLIKELY: Final = 1e-6
_CELLS: Final = 40
_LEAST_MU, _LARGEST_MU = 2.0**-10, 16.0
_GAUSSIAN_POINTS: Final = 24
_TRACE: Final = 12


def canaries(  # noqa: PLR0913 - each is an option of the command
    scores: ArrayLike,
    included: ArrayLike,
    claim: Claim | CurveClaim | Guarantee | str,
    *,
    relation: Relation | str = Relation.ADD_REMOVE,
    guesses: int | None = None,
    guess: Guessed = "both",
    confidence: RationalLike = "0.999",
    seed: int = 0,
    trace: bool = False,
) -> CanaryReport:
    r"""Audit one training run: a lower bound on epsilon from the scores of its canaries.

    ``scores`` contains a finite number for each canary, which is larger if the canary seems more
    likely to be in the training data. ``included`` is 1 for canaries in the training data and 0
    otherwise. Each canary must be included by an independent fair coin, tossed before the training.
    A canary that is not included must be left out (``relation`` "add-remove"), or replaced by
    something that does not depend on the coins ("replace").

    ``claim`` is text such as "epsilon=8,delta=1e-5" or "gdp=1", a claim, or a guarantee of
    ``accounting`` such as the privacy curve of a training run. ``guesses`` is the number of
    canaries to guess. If ``guess`` is "both", half of them are guessed as included and half as
    excluded; otherwise all are guessed as "included" or as "excluded". Choose both arguments before
    you see scores and coins together. By default up to three numbers of guesses share the level: a
    sixteenth of the canaries (or more, if the claim requires it), a quarter, and all. ``seed``
    determines the order of equal scores. ``trace`` adds the results of other numbers of guesses,
    for a plot.

    A true claim is refuted with probability at most 1 - ``confidence``, and the bound
    ``epsilon_lower`` is wrong with probability at most 1 - ``confidence``.

    >>> rng = np.random.default_rng(7)
    >>> included = rng.integers(0, 2, 10_000)
    >>> scores = 2 * included + rng.normal(size=10_000)
    >>> report = canaries(scores, included, "epsilon=2,delta=1e-5")
    >>> report.verdict, 3.8 < report.epsilon_lower < 5
    ('refuted', True)

    Raises :class:`InvalidParameter` if

    - a score is not finite, or the claim cannot be parsed;
    - a value of ``included`` is not 0 or 1, or all these values are equal;
    - the number of included canaries is improbable under fair coins (probability below 1e-9).
    """
    values, truth = _read(scores, included)
    alpha = 1 - level("confidence", confidence, "0.999")
    check_word("guess", guess, Guessed)
    stated = read_claim(claim, relation) if isinstance(claim, str) else claim
    test = _Test.of(stated, len(values), alpha)
    sizes = test.sizes(guesses, guess)
    parts = _PARTS[len(sizes)]
    tests = [replace(test, alpha=alpha * Fraction(part)) for part in parts]
    able = any(each.refuted(size, size) for each, size in zip(tests, sizes, strict=True))
    order = _ordered(values, integer("seed", seed, at_least=0))
    tried = [(size, _right(truth[order], size, guess)) for size in sizes]
    found = list(zip(tests, tried, strict=True))
    bounds = [each.epsilon_lower(*seen) for each, seen in found]
    refuted = [each.refuted(*seen) for each, seen in found]
    best = max(range(len(sizes)), key=lambda i: (refuted[i], bounds[i]))
    mus = [mu for each, seen in found if (mu := each.mu_lower(*seen)) is not None]
    shares = zip(found, parts, strict=True)
    p_values = [each.p_value(*seen) / part for (each, seen), part in shares]
    constant = bool((values == values[0]).all())
    measured: CanaryVerdict = "not_refuted" if able and not constant else "nothing_measured"
    verdict: CanaryVerdict = "refuted" if refuted[best] else measured
    return CanaryReport(
        claim=stated,
        relation=Relation(getattr(stated, "relation", relation)),
        verdict=verdict,
        epsilon_lower=bounds[best],
        at_delta=test.delta,
        mu_lower=max(mus, default=None),
        alpha=alpha,
        p_value=min(1.0, *p_values),
        included=int(truth.sum()),
        excluded=int((~truth).sum()),
        guesses=sizes[best],
        guess=guess,
        right=tried[best][1],
        tried=tuple((*each, bound) for each, bound in zip(tried, bounds, strict=True)),
        needed=None if able else _needed(test),
        constant=constant,
        histogram=_histogram(values, truth),
        trace=tuple(_trace(tests[0], truth[order], guess)) if trace else (),
        seed=seed,
        versions=versions(),
    )


def _numbers(argument: str, given: ArrayLike) -> NDArray[np.float64]:
    refuse_masked(argument, given)
    try:
        found = np.asarray(given)
        if found.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidParameter(argument, given, f"must be numbers ({error})") from None


def _read(scores: ArrayLike, included: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values, truth = _numbers("scores", scores), _numbers("included", included)
    if values.ndim != 1 or not len(values):
        raise InvalidParameter("scores", scores, "must be a list of at least one number")
    if truth.shape != values.shape:
        raise InvalidParameter(
            "included", included, f"must contain {len(values)} values, like scores"
        )
    labels: list[Any] = [getattr(given, "index", None) for given in (scores, included)]
    if all(hasattr(each, "equals") for each in labels) and not labels[0].equals(labels[1]):
        reason = "must have the index of scores: give arrays to pair the values by position"
        raise InvalidParameter("included", included, reason)
    if not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InvalidParameter(f"scores[{place}]", float(values[place]), "must be a finite number")
    if not np.isin(truth, (0.0, 1.0)).all():
        place = int(np.flatnonzero(~np.isin(truth, (0.0, 1.0)))[0])
        raise InvalidParameter(f"included[{place}]", float(truth[place]), "must be 0 or 1")
    inside, total = int(truth.sum()), len(values)
    if inside in {0, total}:
        which = "included" if inside else "excluded"
        reason = "must contain included and excluded canaries: each is included by a fair coin"
        raise InvalidParameter("included", f"all {total:,} {which}", reason)
    # The two-sided p-value of the number of included canaries under fair coins.
    fewer = min(inside, total - inside)
    if 2 * float(betainc(total - fewer, fewer + 1, 0.5)) < _UNFAIR:
        reason = (
            "cannot come from fair coins (probability below 1e-9): every bound assumes them, so "
            "give all canaries for which coins were tossed, including the excluded ones"
        )
        raise InvalidParameter("included", f"{inside:,} of {total:,}", reason)
    return values, truth.astype(np.bool_)


def _ordered(values: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    # Put equal scores in random order, because the order in a file may depend on inclusion.
    shuffled = np.random.default_rng(seed).permutation(len(values))
    found: NDArray[np.int64] = shuffled[np.argsort(values[shuffled], kind="stable")]
    return found


def _right(truth: NDArray[np.bool_], guesses: int, guess: Guessed) -> int:
    # The number of right guesses; ``truth`` contains the inclusions by increasing score.
    ends = {"both": (guesses // 2, guesses // 2), "included": (0, guesses)}
    low, high = ends.get(guess, (guesses, 0))
    return int(np.count_nonzero(~truth[:low])) + int(np.count_nonzero(truth[len(truth) - high :]))


def planned_guesses(total: int, all_right: Callable[[int], bool]) -> tuple[int, ...]:
    r"""How many of ``total`` canaries to guess: up to three numbers, in increasing order.

    ``all_right(r)`` states whether r right guesses of r refute the claim. The first number is about
    1.5 times the least such r, but at least 32 and at least a sixteenth of the canaries. The others
    are a quarter of the canaries and all canaries.
    """
    usual = max(total // _SHARE, min(_FEWEST, total))
    least = next((r for r in _doubling(2, total) if all_right(r)), None)
    first = usual if least is None else min(total, max(usual, 3 * least // 2))
    even = (size - size % 2 for size in (first, total // 4, total) if size >= first)
    return tuple(sorted({max(size, min(2, total)) for size in even}))


def _doubling(first: int, last: int) -> list[int]:
    found = []
    while first < last:
        found.append(first)
        first = first * 5 // 4 + 1
    return [*found, last - last % 2 or last]


def _needed(test: _Test) -> int | None:
    # The least number of canaries that could refute the claim if all are guessed right.
    def enough(total: int) -> bool:
        return replace(test, total=total).refuted(total - total % 2, total - total % 2)

    high = next((total for total in _doubling(test.total, _MOST_NEEDED) if enough(total)), None)
    if high is None:
        return None
    return bisect_left(range(high), 1, test.total, key=lambda total: int(enough(total)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    # The test of a claim from the numbers of guesses and right guesses. For delta = 0 it is a
    # binomial tail, otherwise it uses ``lines``.
    claim: Claim | CurveClaim | Guarantee
    total: int
    alpha: Fraction
    delta: Fraction
    lines: tuple[LossLine, ...]

    @classmethod
    def of(cls, claim: Claim | CurveClaim | Guarantee, total: int, alpha: Fraction) -> _Test:
        points = [claim.exact] if isinstance(claim, Claim) else _points(claim)
        delta = points[0][1] if isinstance(claim, Claim) else _CURVE_DELTA
        return cls(claim=claim, total=total, alpha=alpha, delta=delta, lines=lines_of(points))

    def sizes(self, guesses: int | None, guess: Guessed) -> tuple[int, ...]:
        # The numbers of guesses that share alpha.
        if guesses is None:
            shared, every = replace(self, alpha=self.alpha / 2), self.total - self.total % 2
            found = planned_guesses(self.total, lambda r: shared.refuted(r, r))
            able = any(shared.refuted(size, size) for size in found)
            return found if able or not self.refuted(every, every) else (every,)
        number = integer("guesses", guesses, at_least=1)
        if number > self.total:
            raise InvalidParameter(
                "guesses", guesses, f"must be <= {self.total}, the number of canaries"
            )
        if guess == "both" and number % 2:
            raise InvalidParameter(
                "guesses", guesses, "must be even: half of them are guessed as included"
            )
        return (number,)

    @property
    def level(self) -> float:
        return round_down(self.alpha)

    def refuted(self, guesses: int, right: int) -> bool:
        if isinstance(self.claim, Claim):
            return self.refuted_at(self.claim.exact[0], guesses, right)
        return curve_refuted(self.total, guesses, right, self.lines, self.level)

    def refuted_at(self, epsilon: Fraction, guesses: int, right: int) -> bool:
        if self.delta:
            lines = lines_of([(epsilon, self.delta)])
            return curve_refuted(self.total, guesses, right, lines, self.level)
        return self._tail(epsilon, guesses, right) <= self.level

    def p_value(self, guesses: int, right: int) -> float:
        if isinstance(self.claim, Claim) and not self.delta:
            return self._tail(self.claim.exact[0], guesses, right)
        return curve_p_value(self.total, guesses, right, self.lines)

    def _tail(self, epsilon: Fraction, guesses: int, right: int) -> float:
        return one_run_p_value(self.total, guesses, right, epsilon=epsilon, delta=0)

    def epsilon_lower(self, guesses: int, right: int) -> float:
        bound = largest_rejected(lambda epsilon: self.refuted_at(Fraction(epsilon), guesses, right))
        if isinstance(self.claim, Claim) and not self.refuted(guesses, right):
            # Except for rounding, no bound exceeds a claim that is not refuted.
            return min(bound, round_down(self.claim.exact[0]))
        return bound

    def mu_lower(self, guesses: int, right: int) -> float | None:
        # For a claim of Gaussian DP, the largest refuted mu.
        if not (isinstance(self.claim, CurveClaim) and self.claim.spelling.startswith("gdp=")):
            return None

        def rejected(mu: float) -> bool:
            lines = lines_of(_gaussian(Fraction(max(mu, _LEAST_MU))))
            return curve_refuted(self.total, guesses, right, lines, self.level)

        return largest_rejected(rejected, most=_LARGEST_MU)


def _points(claim: CurveClaim | Guarantee) -> list[tuple[Fraction, Fraction]]:
    # Points on or above the curve of a claim. Their choice affects only the power of the test.
    if isinstance(claim, CurveClaim):
        listed = [point.exact for point in claim.points]
        end = max(epsilon for epsilon, _ in listed)
        return [*listed, *_spread(end, _CURVE_POINTS, claim.delta_upper)]
    if isinstance(claim, Guarantee):
        last = claim.epsilon(_END_DELTA, _RELATIVE).upper_float
        if last == math.inf:
            raise InvalidParameter("claim", claim, "must have a finite epsilon at delta = 1e-6")
        return _spread(Fraction(last), _FEW_POINTS, lambda e: claim.delta(e, _RELATIVE).upper_float)
    raise InvalidParameter("claim", claim, 'must be a claim, or text such as "epsilon=1"')


def _spread(
    end: Fraction, points: int, delta: Callable[[Fraction], Fraction | float]
) -> list[tuple[Fraction, Fraction]]:
    at = [end * k / points for k in range(points)]
    return [(epsilon, Fraction(delta(epsilon))) for epsilon in at]


def _gaussian(mu: Fraction) -> list[tuple[Fraction, Fraction]]:
    from accounting.published_noise_bounds import real_gaussian_delta

    end = mu * (5 + mu / 2)  # delta is below 1e-6 there
    return _spread(end, _GAUSSIAN_POINTS, lambda e: real_gaussian_delta(1 / mu, e).upper)


def _histogram(values: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[Cell, ...]:
    try:
        with np.errstate(over="raise"):
            edges = np.histogram_bin_edges(values, bins=_CELLS)
    except (ValueError, FloatingPointError):  # too close or too far apart for 40 equal cells
        edges = np.quantile(values, np.linspace(0, 1, _CELLS + 1), method="nearest")
        edges = np.unique(edges) if edges[0] < edges[-1] else edges[:2]
    counts = [np.histogram(values[truth == side], bins=edges)[0] for side in (True, False)]
    ends = edges.tolist()
    return tuple(map(Cell, ends[:-1], ends[1:], *(side.tolist() for side in counts)))


def _trace(test: _Test, truth: NDArray[np.bool_], guess: Guessed) -> list[tuple[int, float]]:
    # The results for other numbers of guesses, which are not valid bounds.
    shares = sorted({max(2, (test.total >> k) & ~1) for k in range(_TRACE)})
    sizes = [size for size in shares if size <= test.total]
    return [(size, test.epsilon_lower(size, _right(truth, size, guess))) for size in sizes]


_COLUMNS: Final = ("score", "included")
_INCLUDED: Final = {"1": True, "true": True, "0": False, "false": False}
_ARRAYS: Final = ".npz"
_MOST: Final = 1 << 30


def read_scores(path: str) -> tuple[list[Any], list[Any]]:
    r"""Read the scores and inclusions of a CSV or .npz file; "-" is standard input, as CSV.

    Other columns and arrays are ignored. Raises :class:`InvalidParameter` if the file is invalid;
    for a CSV file, the message names the line. The values of arrays are checked in
    :func:`canaries`.
    """
    if path.endswith(_ARRAYS):
        return _read_arrays(path)
    return parsed(read_text("SCORES", path, most=_MOST, stdin=True), path)


def _read_arrays(path: str) -> tuple[list[Any], list[Any]]:
    wrong = partial(InvalidParameter, "SCORES", path)
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in _COLUMNS if name in file.files}
    except OSError as error:
        raise wrong(error.strerror or str(error)) from None
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        raise wrong("is not an .npz file of numbers") from None
    shapes = {array.shape for array in found.values()}
    if len(found) != len(_COLUMNS) or len(shapes) != 1 or len(*shapes) != 1:
        raise wrong(f"must contain two arrays of equal length: {' and '.join(_COLUMNS)}")
    if any(array.dtype.kind not in "biuf" for array in found.values()):
        raise wrong("must contain numbers")
    return found["score"].tolist(), found["included"].tolist()


def parsed(text: str, path: str) -> tuple[list[float], list[bool]]:
    r"""Parse the text of a CSV file: the scores, and whether each canary was included."""
    rows = rows_of("SCORES", path, io.StringIO(text))
    header = [name.strip() for name in next(rows, (0, []))[1]]
    for name in _COLUMNS:
        if header.count(name) != 1:
            reason = f"must name one column {name!r} in its first line, e.g. {','.join(_COLUMNS)}"
            raise InvalidParameter("SCORES", path, reason)
    score, inclusion = (header.index(name) for name in _COLUMNS)
    scores, included = [], []
    for line, row in rows:
        where = f"{path}, line {line}"
        if len(row) != len(header):
            reason = f"must contain {len(header)} values, like the first line"
            raise InvalidParameter(where, ",".join(row), reason)
        scores.append(_score(where, row[score]))
        word = row[inclusion].strip()
        if word.lower() not in _INCLUDED:
            raise InvalidParameter(f"{where}: included", word, "must be 1 or 0 (true or false)")
        included.append(_INCLUDED[word.lower()])
    if not scores:
        raise InvalidParameter("SCORES", path, "contains no canaries below its first line")
    return scores, included


def _score(where: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidParameter(f"{where}: score", text.strip(), "must be a finite number")
    return found
