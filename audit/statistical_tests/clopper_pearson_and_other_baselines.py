r"""Baseline methods: lower bounds on epsilon from threshold events and from one-run guesses.

Let P and Q be the output distributions on the two datasets. If the mechanism is (epsilon,
delta)-DP, then P(S) <= e^epsilon Q(S) + delta for every event S. So the bounds p <= P(S) and q >=
Q(S) together imply epsilon >= ln((p - delta)/q). For comparison, there are three methods without
valid bounds: ``plug_in``, ``bayes`` and ``gaussian_dp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, ndtri

from accounting.privacy_curves.real_gaussian_closed_form import NormalLoss
from audit.claims import level
from audit.outputs.reading import Integers, read, read_worlds
from audit.statistical_tests.event import Floats
from audit.statistical_tests.one_run_canaries import largest_rejected, one_run_p_value
from audit.statistical_tests.prequential_fixed_runs_test import read_claim
from dpcore.errors import InvalidParameter
from dpcore.numbers.clopper_pearson import lower_end, upper_end
from dpcore.numbers.enclosure import round_down
from dpcore.numbers.parameter import RationalLike, integer
from dpcore.spec_syntax import find_name

# -- counts of events -----------------------------------------------------------------------------

_MOST_THRESHOLDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineParameters:
    r"""The parameters of the baselines: delta (rounded up), alpha (rounded down), and seed."""

    delta: float
    alpha: float
    seed: int

    @classmethod
    def read(cls, delta: RationalLike, alpha: RationalLike, seed: int) -> Self:
        r"""Parse the parameters. Raises :class:`InvalidParameter` if one is out of range."""
        return cls(
            delta=read_claim(0, delta)[1],
            alpha=round_down(level("alpha", alpha)),
            seed=integer("seed", seed, at_least=0),
        )

    @property
    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    r"""How often threshold events occurred on each dataset, with one entry per threshold.

    The events indicate one of the datasets. On that dataset they occurred in ``hits`` of ``runs``
    runs, and on the other dataset in ``misses`` of ``others`` runs.
    """

    hits: Integers
    runs: int
    misses: Integers
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    r"""The numerical output of each run, and the dataset of each run (True for B).

    The baselines use only the order of the outputs. Therefore :meth:`read` replaces outputs by
    their ranks, which are exact even if the outputs are not floats.
    """

    numbers: Floats
    worlds: NDArray[np.bool_]

    @classmethod
    def read(cls, outputs: object, worlds: object) -> Self:
        r"""Read scores. Raises :class:`InvalidParameter` unless all outputs are finite numbers."""
        reading = read(outputs)
        truth = read_worlds(worlds, len(reading))
        if bool((reading.codes >= 0).any()):
            raise InvalidParameter("outputs", outputs, "must be finite numbers for this baseline")
        return cls(numbers=reading.numbers.unique()[2].astype(np.float64), worlds=truth)

    def part(self, chosen: Integers) -> Scores:
        return Scores(numbers=self.numbers[chosen], worlds=self.worlds[chosen])

    def thresholds(self, most: int = _MOST_THRESHOLDS) -> Floats:
        r"""The distinct scores or, if there are more than n = ``most``, at most n quantiles."""
        distinct = np.unique(self.numbers)
        if len(distinct) <= most:
            return distinct
        return np.unique(np.quantile(self.numbers, np.linspace(0, 1, most), method="inverted_cdf"))

    def counts(self, thresholds: Floats) -> Iterator[Counts]:
        r"""Yield the counts of four events at all thresholds t.

        The events are "score <= t" and "> t" as signs of dataset A, then both as signs of B.
        """
        sides = [np.sort(self.numbers[self.worlds == world]) for world in (False, True)]
        below = [np.searchsorted(side, thresholds, side="right") for side in sides]
        runs = [len(side) for side in sides]
        inside = [below, [n - k for n, k in zip(runs, below, strict=True)]]
        for world in (0, 1):
            for k in inside:
                yield Counts(
                    hits=k[world], runs=runs[world], misses=k[1 - world], others=runs[1 - world]
                )


# -- thresholds -----------------------------------------------------------------------------------

BONFERRONI_THRESHOLDS: Final = 32
r"""The number of thresholds in :func:`bonferroni_thresholds`, which share the level."""


def _log_ratio(p: Floats, q: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.log(np.maximum(p - delta, 0.0)) - np.log(q)
    return np.where(np.isnan(found), -np.inf, found)


def _bounded(counts: Counts, delta: float, level: float) -> Floats:
    p = lower_end(counts.hits, counts.runs, level)
    q = upper_end(counts.misses, counts.others, level)
    return _log_ratio(p, q, delta)


def chosen_event(scores: Scores, parameters: BaselineParameters) -> Counts | None:
    r"""Choose a threshold event on a random half of the runs, and count it in the other half.

    On the half where it is chosen, the event has the largest bound on epsilon. Returns None for
    fewer than two runs.
    """
    order = parameters.generator.permutation(len(scores.numbers))
    train, test = scores.part(order[: len(order) // 2]), scores.part(order[len(order) // 2 :])
    thresholds = train.thresholds()
    if not thresholds.size:
        return None
    on_train = np.array(
        [
            _bounded(counts, parameters.delta, parameters.alpha / 2)
            for counts in train.counts(thresholds)
        ]
    )
    event, place = np.unravel_index(int(np.argmax(on_train)), on_train.shape)
    return list(test.counts(thresholds[place : place + 1]))[int(event)]


def clopper_pearson_split(scores: Scores, parameters: BaselineParameters) -> float:
    r"""Clopper-Pearson bounds for an event that was chosen on a random half of the runs.

    The event is counted on the other half, and its probability on each dataset is bounded at level
    alpha/2. Valid: the event is fixed before the runs on which it is counted, and both bounds hold
    together with probability at least 1 - alpha. Source: re-derived after the split method in the
    auditing module of jax_privacy.
    """
    counts = chosen_event(scores, parameters)
    if counts is None:
        return 0.0
    return max(0.0, float(_bounded(counts, parameters.delta, parameters.alpha / 2)[0]))


def dkw(scores: Scores, parameters: BaselineParameters) -> float:
    r"""The largest lower bound on epsilon over all thresholds, from the DKW inequality.

    For n runs, P(sup_t |F_n(t) - F(t)| > c) <= 2 exp(-2 n c^2), where F is the distribution
    function of the outputs and F_n the empirical one. For each dataset, c is chosen such that the
    right side is alpha/2. Valid: the bands of width c hold for all thresholds simultaneously.
    Source: Dvoretzky, Kiefer and Wolfowitz 1956, with the constant of Massart 1990.
    """
    return _largest_ratio(
        scores, parameters, lambda n: math.sqrt(math.log(4 / parameters.alpha) / (2 * n))
    )


def _largest_ratio(
    scores: Scores, parameters: BaselineParameters, width: Callable[[int], float]
) -> float:
    # The largest bound over all thresholds, if a frequency in n runs errs by at most ``width(n)``.
    best = 0.0
    for counts in scores.counts(scores.thresholds()):
        if counts.runs and counts.others:
            p = counts.hits / counts.runs - width(counts.runs)
            q = np.minimum(counts.misses / counts.others + width(counts.others), 1.0)
            best = max(best, float(_log_ratio(p, q, parameters.delta).max()))
    return best


def bonferroni_thresholds(scores: Scores, parameters: BaselineParameters) -> float:
    r"""The largest Clopper-Pearson bound over :data:`BONFERRONI_THRESHOLDS` thresholds.

    The thresholds are quantiles of a random tenth of the runs, and the events are counted on the
    other runs. With m thresholds, the probability of each threshold event is bounded from below and
    from above on both datasets. Each of these 4 m bounds has error probability alpha/(4 m). Valid
    by the union bound (Bonferroni).
    """
    order = parameters.generator.permutation(len(scores.numbers))
    tenth = -(-len(order) // 10)
    thresholds = scores.part(order[:tenth]).thresholds(BONFERRONI_THRESHOLDS)
    tested = scores.part(order[tenth:])
    level = parameters.alpha / (4 * BONFERRONI_THRESHOLDS)
    found = [_bounded(counts, parameters.delta, level) for counts in tested.counts(thresholds)]
    return max(0.0, *(float(bounds.max(initial=0.0)) for bounds in found))


def plug_in(scores: Scores, parameters: BaselineParameters) -> float:
    r"""The largest bound over all thresholds, with frequencies in place of probabilities.

    This is a negative control and never valid: if outputs are continuous, the smallest one occurs
    on only one dataset, so the ratio of frequencies is infinite there for every mechanism.
    """
    return _largest_ratio(scores, parameters, lambda _: 0.0)


# -- not valid ------------------------------------------------------------------------------------

_NODES: Final = 512
_CURVE_BITS: Final = 40


def bayes(scores: Scores, parameters: BaselineParameters) -> float:
    r"""The alpha-quantile of the posterior of epsilon, under Jeffreys priors.

    The event is chosen on one random half of the runs, as in ``clopper-pearson-split``, and counted
    on the other half. If it occurred in k of n runs on a dataset, its probability there has a
    Beta(k + 1/2, n - k + 1/2) posterior. The posteriors of the two datasets are independent, and
    the posterior of epsilon is the law of the least epsilon that allows both probabilities. This is
    not a confidence bound: for delta = 0, epsilon = 0 has posterior probability 0, so the result is
    positive even for identical datasets. Source: Zanella-Beguelin et al. 2023, "Bayesian estimation
    of differential privacy".
    """
    counts = chosen_event(scores, parameters)
    if counts is None:
        return 0.0
    other = _posterior_quantiles(counts)
    return largest_rejected(
        lambda epsilon: _allowed(counts, other, epsilon, parameters.delta) < parameters.alpha
    )


def _posterior_quantiles(counts: Counts) -> Floats:
    # Quantiles of the posterior of the event's probability on the other dataset. A mean over these
    # approximates an integral over the posterior.
    j, shares = int(counts.misses[0]), (np.arange(_NODES) + 0.5) / _NODES
    found: Floats = betaincinv(j + 0.5, counts.others - j + 0.5, shares)
    return found


def _allowed(counts: Counts, q: Floats, epsilon: float, delta: float) -> float:
    k, up, down = int(counts.hits[0]), math.exp(epsilon), math.exp(-epsilon)
    most = np.minimum(up * q + delta, 1.0 - down * (1.0 - q - delta))
    least = np.maximum(down * (q - delta), 1.0 - delta - up * (1.0 - q))
    ends = np.clip(np.stack((least, most)), 0.0, 1.0)
    share = np.diff(betainc(k + 0.5, counts.runs - k + 0.5, ends), axis=0)
    return float(np.maximum(share, 0.0).mean())


def gaussian_dp(scores: Scores, parameters: BaselineParameters) -> float:
    r"""A bound on epsilon from the error rates, under the assumption of a Gaussian mechanism.

    At every threshold, let p be a lower Clopper-Pearson bound on the probability of the threshold
    event on one dataset, and q an upper bound on its probability on the other dataset, each at
    level alpha/2. Then mu = Phi^-1(p) - Phi^-1(q). The largest mu is converted to epsilon with the
    privacy curve of N(0, 1) against N(mu, 1). Not valid: mu does not determine the privacy curve of
    other mechanisms, and the threshold is chosen on the tested runs. Source: Nasr et al. 2023,
    "Tight auditing of differentially private machine learning", after Dong, Roth and Su 2022.
    """
    mu = 0.0
    for counts in scores.counts(scores.thresholds()):
        p = lower_end(counts.hits, counts.runs, parameters.alpha / 2)
        q = upper_end(counts.misses, counts.others, parameters.alpha / 2)
        both = (p > 0.0) & (q < 1.0)
        mu = max(mu, float((ndtri(p[both]) - ndtri(q[both])).max(initial=0.0)))
    return gaussian_epsilon(mu, parameters.delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""The least epsilon at ``delta`` for N(0, 1) against N(mu, 1), rounded down; may be inf."""
    if mu <= 0.0:
        return 0.0
    if delta == 0.0:
        return math.inf
    loss = NormalLoss(variance=Fraction(mu) ** 2)
    return loss.epsilon(Fraction(delta), _CURVE_BITS).lower_float


# -- a one-run audit in which each run is a canary ------------------------------------------------

GUESSED: Final = 10
r"""The inverse of the fraction of runs that are guessed at each end of the scores."""


def one_run(scores: Scores, parameters: BaselineParameters) -> float:
    r"""Test guesses as in a one-run audit, with the runs in place of canaries.

    One dataset is guessed for the lowest tenth of the outputs, and the other for the highest tenth.
    Valid: both assignments are tested, each at level alpha/2 (proven only for delta = 0, see
    :func:`one_run_p_value`). The bound is the largest rejected epsilon.
    """
    canaries = len(scores.numbers)
    end = canaries // GUESSED
    if not end:
        return 0.0
    order = np.argsort(scores.numbers, kind="stable")
    of_b = np.concatenate((~scores.worlds[order[:end]], scores.worlds[order[-end:]]))
    right = int(np.count_nonzero(of_b))
    right = max(right, 2 * end - right)

    def rejected(epsilon: float) -> bool:
        p_value = one_run_p_value(canaries, 2 * end, right, epsilon=epsilon, delta=parameters.delta)
        return p_value <= parameters.alpha / 2

    return largest_rejected(rejected)


class Baseline(NamedTuple):
    r"""A method that computes a lower bound on epsilon from outputs that are finite numbers.

    ``valid`` states that P(bound > true epsilon) <= alpha for every mechanism. ``says`` describes
    the method in words.
    """

    says: str
    valid: bool
    bound: Callable[[Scores, BaselineParameters], float]

    def lower(
        self,
        outputs: object,
        worlds: object,
        *,
        delta: RationalLike = 0,
        alpha: RationalLike = "0.05",
        seed: int,
    ) -> float:
        r"""The lower bound on epsilon; ``seed`` determines the random splits of the runs."""
        return self.bound(Scores.read(outputs, worlds), BaselineParameters.read(delta, alpha, seed))


_VALID: Final = {
    clopper_pearson_split: "event from one half of the runs, Clopper-Pearson bounds from the other",
    dkw: "Dvoretzky-Kiefer-Wolfowitz bands over all thresholds",
    bonferroni_thresholds: "Clopper-Pearson bounds at 32 thresholds, level shared",
    one_run: "Steinke, Nasr and Jagielski 2023: the runs as canaries of one run",
}
_NOT_VALID: Final = {
    bayes: "Zanella-Beguelin et al. 2023: not a confidence bound",
    gaussian_dp: "Nasr et al. 2023: assumes a Gaussian, chooses its threshold on the tested runs",
    plug_in: "ratio of frequencies: always wrong, a negative control",
}

BASELINES: Final[Mapping[str, Baseline]] = MappingProxyType(
    {
        bound.__name__.replace("_", "-"): Baseline(says, bound in _VALID, bound)
        for bound, says in (_VALID | _NOT_VALID).items()
    }
)
r"""The baselines by name.

>>> [name for name, baseline in BASELINES.items() if not baseline.valid]
['bayes', 'gaussian-dp', 'plug-in']
"""


_NOT_NUMBERS: Final = "does not apply to these outputs: not all of them are finite numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFinding:
    r"""The result of a baseline; ``epsilon_lower`` is None if an output is not a finite number."""

    name: str
    epsilon_lower: float | None
    says: str
    valid: bool


def baseline_names(names: Iterable[str]) -> tuple[str, ...]:
    r"""Parse baseline names, in the order of :data:`BASELINES`; "all" stands for every name."""
    given = set(names)
    for name in sorted(given - BASELINES.keys() - {"all"}):
        find_name("baseline", name, dict.fromkeys((*BASELINES, "all")))
    return tuple(name for name in BASELINES if name in given or "all" in given)


def compare(
    names: Iterable[str],
    outputs: object,
    worlds: object,
    *,
    delta: RationalLike = 0,
    alpha: RationalLike = "0.05",
    seed: int,
) -> tuple[BaselineFinding, ...]:
    r"""The bounds of the named baselines on the same runs, each at level alpha by itself."""
    chosen = baseline_names(names)
    parameters = BaselineParameters.read(delta, alpha, seed)
    labelled = bool((read(outputs).codes >= 0).any())
    scores = None if labelled else Scores.read(outputs, worlds)
    return tuple(
        BaselineFinding(
            name=name,
            epsilon_lower=None if scores is None else bound(scores, parameters),
            says=_NOT_NUMBERS if scores is None else says,
            valid=valid,
        )
        for name, (says, valid, bound) in ((name, BASELINES[name]) for name in chosen)
    )
