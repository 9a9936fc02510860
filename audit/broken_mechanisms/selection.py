r"""Bugs in selection: sparse vector, noisy max, the exponential mechanism, permute-and-flip.

Sparse vector reports which of many answers reach a noisy threshold, 0 here; each answer changes by
at most 1 between neighbours, in either direction. Only answers above the threshold should cost
privacy; four published variants omit noise, or a stop, that this guarantee needs. Algorithms are
numbered as in Figure 1 of Lyu, Su and Li, "Understanding the Sparse Vector Technique for
Differential Privacy" (arXiv 1603.01699); 1 is the correct one.

Report noisy max: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014),
section 3.3. The exponential mechanism (McSherry and Talwar, "Mechanism Design via Differential
Privacy", 2007) chooses a candidate of score u with probability proportional to e^(epsilon u/2).
Scores change by at most 1 and are 0 or 1 here; weights are whole thousandths, e^(epsilon/2) rounded
down, and drawn from integers: the law is exact and costs a little less.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from flint import arb
from numpy.typing import NDArray

from audit.broken_mechanisms.catalogue_entry import Entry, Twin, laplace, seeded
from dpcore import DiscreteLaplace, Enclosure
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball, narrow
from dpcore.numbers.parameter import RationalLike
from dpcore.selection import Rule, Selection

_REACH: Final = 256


def _reached(
    answers: Sequence[int],
    scales: tuple[RationalLike, RationalLike],
    n: int,
    rng: np.random.Generator,
) -> tuple[Integers, NDArray[np.bool_]]:
    # The noisy answers, and whether each is at or above the noisy threshold; one row per run.
    threshold = laplace(scales[0], (n, 1), rng)
    noisy: Integers = np.asarray(answers) + laplace(scales[1], (n, len(answers)), rng)
    return noisy, noisy >= threshold


def _stopped(reached: NDArray[np.bool_], cutoff: int) -> Integers:
    # 0 for below, 1 for above, and -1 for answers after the first ``cutoff`` ones above.
    above = reached.astype(np.int64)
    return np.where(np.cumsum(above, axis=1) - above >= cutoff, -1, above)


def _first(values: Integers, reached: NDArray[np.bool_]) -> Integers:
    # The number of answers before the first one above, and its value; if none is above, the number
    # of answers and 0.
    below = np.where(reached.any(axis=1), reached.argmax(axis=1), reached.shape[1])
    padded = np.pad(values, ((0, 0), (0, 1)))
    return np.stack((below, padded[np.arange(len(padded)), below]), axis=1)


def sparse_vector(
    answers: Sequence[int],
    n: int,
    rng: np.random.Generator,
    *,
    scales: tuple[RationalLike, RationalLike],
    cutoff: int,
) -> Integers:
    r"""Whether each answer is at or above 0, up to ``cutoff`` answers above (c in Algorithms 1 and
    4).

    At epsilon = 1 Algorithm 1 adds noise to the threshold with half of epsilon (scale 2), to each
    answer with the other half (scale 2 c/(1/2) = 4 c). A row has 0 for "below", 1 for "above", -1
    for "not answered". Algorithm 4 uses a quarter and three quarters for every c.
    """
    return _stopped(_reached(answers, scales, n, rng)[1], cutoff)


def sparse_vector_value(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The number of answers before the first one above, and its value (Algorithm 1 with c = 1).

    A quarter of epsilon is for the threshold (scale 4), a quarter for the answers (scale 8), and
    half for the release of the answer above with fresh noise (scale 2).
    """
    reached = _reached(answers, (4, 8), n, rng)[1]
    return _first(np.asarray(answers) + laplace(2, reached.shape, rng), reached)


def sparse_vector_roth(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Sparse vector that releases the answer above with the noise of its comparison (scale 2), so
    that it bounds the threshold from above (Algorithm 3 with c = 1).
    """
    return _first(*_reached(answers, (2, 2), n, rng))


def sparse_vector_gap(
    answers: Sequence[int], n: int, rng: np.random.Generator, *, public: bool = False
) -> Integers:
    r"""The number of answers below, and the gap of the noisy answer above to the noisy threshold,
    with the scales of Algorithm 1 for c = 1. A ``public`` threshold leaves all of epsilon to the
    answers.
    """
    threshold = 0 if public else laplace(2, (n, 1), rng)
    noise = laplace(2 if public else 4, (n, len(answers)), rng)
    lead: Integers = np.asarray(answers) + noise - threshold
    return _first(lead, lead >= 0)


def sparse_vector_stoddard(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Sparse vector in which only the threshold is noisy, and which never stops (Algorithm 5)."""
    threshold = laplace(2, (n, 1), rng)
    return (np.asarray(answers) >= threshold).astype(np.int64)


def sparse_vector_chen(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Sparse vector with scale 2 for threshold and answers, which never stops (Algorithm 6)."""
    return _reached(answers, (2, 2), n, rng)[1].astype(np.int64)


def row_mass(
    row: Sequence[int],
    answers: Sequence[int],
    scales: tuple[RationalLike, RationalLike],
) -> arb:
    r"""The probability that exactly the answers with a 1 in ``row`` reach the threshold; ``scales``
    are those of the threshold and of the answers. Entries other than 0 and 1 were not queried.

    It is the sum over thresholds of absolute value at most 256, plus a ball that contains the
    contribution of all others.
    """
    threshold, noise = (DiscreteLaplace(scale=scale) for scale in scales)
    below = {k: noise.cdf_ball(k) for k in range(-_REACH - 1 - max(answers), _REACH - min(answers))}
    total = threshold.tail_ball(_REACH) * arb(0.5, 0.5)
    for t in range(-_REACH, _REACH + 1):
        mass = threshold.pmf_ball(t)
        for outcome, answer in zip(row, answers, strict=True):
            under = below[t - 1 - answer]
            match outcome:
                case 0:
                    mass *= under
                case 1:
                    mass *= 1 - under
        total += mass
    return total


def _true_epsilon(
    row: Sequence[int],
    pair: tuple[Sequence[int], Sequence[int]],
    scales: tuple[RationalLike, RationalLike],
) -> Enclosure:
    # The loss of this row, which has the largest probability ratio of the first dataset to the
    # second.
    def ratio() -> arb:
        first, second = (row_mass(row, answers, scales) for answers in pair)
        return (first / second).log()

    return narrow(ratio, 64)


_VALUE_PAIR: Final = ([-1, -1, -1, -1, -1, 0], [0, 0, 0, 0, 0, -1])
_LEE_PAIR: Final = ([-1, -1, -1, 1, 1], [0, 0, 0, 0, 0])
_CHEN_PAIR: Final = ([-1, -1, -1, 0, 0, 0], [0, 0, 0, -1, -1, -1])

VALUE: Final = Twin(name="sparse-vector-value", run=sparse_vector_value, pair=_VALUE_PAIR)
# Each answer below the threshold adds to the cost: 0.93 with five of them, 1 in the limit.
_ONE: Final = Twin(
    name="sparse-vector",
    run=partial(sparse_vector, scales=(2, 4), cutoff=1),
    pair=([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 0]),
)

_SPARSE_VECTOR: Final = (
    Entry(
        name="sparse-vector-value-reused",
        number=9,
        sentence="The answer above is released with the noise of its comparison: it bounds the "
        "noisy threshold, so answers below also cost privacy.",
        source="Roth's lecture notes of 2011, as Algorithm 3 of Lyu et al. (arXiv 1603.01699)",
        run=sparse_vector_roth,
        pair=_VALUE_PAIR,
        # Five answers below, then the value 0: the threshold is at most 0, where each of the five
        # and the value contribute a factor e^(1/2). With m answers below, epsilon is (m + 1)/2,
        # which is unbounded.
        true_epsilon=Enclosure.exactly(3),
        runs=30_000,
        twin=VALUE,
    ),
    Entry(
        name="sparse-vector-unscaled",
        number=10,
        sentence="Two answers may be above, but the noise of an answer suffices for only one.",
        source="Lee and Clifton 2014, as Algorithm 4 of Lyu et al. (arXiv 1603.01699): epsilon is "
        "at most (1 + 6c)/4 = 3.25 for c = 2",
        run=partial(sparse_vector, scales=(4, Fraction(4, 3)), cutoff=2),
        pair=_LEE_PAIR,
        true_epsilon=_true_epsilon([0, 0, 0, 1, 1], _LEE_PAIR, (4, Fraction(4, 3))),
        runs=10_000,
        twin=Twin(
            name="sparse-vector-two",
            run=partial(sparse_vector, scales=(2, 8), cutoff=2),
            pair=([2, 2, 2, 2, 2, 2, 0, 0], [3, 3, 3, 3, 3, 3, -1, -1]),
        ),
    ),
    Entry(
        name="sparse-vector-noiseless-answers",
        number=11,
        sentence="Only the threshold is noisy: answers on both sides of it determine it, and "
        "the order of two of them reveals the dataset.",
        source="Stoddard et al. 2014, as Algorithm 5 of Lyu et al. (arXiv 1603.01699)",
        run=sparse_vector_stoddard,
        pair=([0, 1], [1, 0]),
        true_epsilon=Enclosure.infinite(),
        runs=500,
        twin=_ONE,
    ),
    Entry(
        name="sparse-vector-gap-public-threshold",
        number=53,
        sentence="The gap to a threshold without noise is released: each answer below costs as "
        "much as the one above.",
        source="the free gap of Ding et al. 2019 (arXiv 1904.12773) is the gap to the noisy "
        "threshold",
        run=partial(sparse_vector_gap, public=True),
        pair=_VALUE_PAIR,
        # Five answers below and a gap, each with a factor e^(1/2); with m answers below, (m + 1)/2.
        true_epsilon=Enclosure.exactly(3),
        runs=5000,
        twin=Twin(name="sparse-vector-gap", run=sparse_vector_gap),
    ),
    Entry(
        name="sparse-vector-endless",
        number=12,
        sentence="Sparse vector never stops: any number of answers are compared with one noisy "
        "threshold.",
        source="Chen et al. 2015, as Algorithm 6 of Lyu et al. (arXiv 1603.01699)",
        run=sparse_vector_chen,
        pair=_CHEN_PAIR,
        # It grows without bound with the number of answers.
        true_epsilon=_true_epsilon([0, 0, 0, 1, 1, 1], _CHEN_PAIR, (2, 2)),
        runs=10_000,
        twin=_ONE,
    ),
)


# -- selection ------------------------------------------------------------------------------------


def noisy_max(
    counts: Sequence[int], n: int, rng: np.random.Generator, *, scale: int = 2, shared: bool = False
) -> Integers:
    r"""The index of the largest noisy count (the first one if several), with scale 2/epsilon = 2
    and one draw per count. Scale 1 suffices only if all counts change in the same direction, but
    between neighbours one may grow while the others fall.
    """
    noisy: Integers = np.asarray(counts) + laplace(scale, (n, 1 if shared else len(counts)), rng)
    return np.asarray(noisy.argmax(axis=1))


def noisy_max_value(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The largest noisy count itself, with the noise of :func:`noisy_max`."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    return np.asarray(noisy.max(axis=1))


def _half_noise() -> arb:
    # The first count wins if no other noisy count exceeds it. The first noisy count is the
    # threshold, and another count must exceed it by at least 1: an answer of (count - first count -
    # 1).
    def wins(counts: Sequence[int]) -> arb:
        behind = [other - counts[0] - 1 for other in counts[1:]]
        return row_mass([0] * len(behind), behind, (1, 1))

    first, second = _HALF_PAIR
    return (wins(second) / wins(first)).log()


_HALF_PAIR: Final = ([0, 2, 2, 2, 2], [1, 1, 1, 1, 1])

_INDEX: Final = Twin(name="noisy-max", run=noisy_max, pair=([0, 1, 1, 1, 1], [1, 0, 0, 0, 0]))

_SELECTION: Final = (
    Entry(
        name="noisy-max-value",
        number=13,
        sentence="The noise is for the index of the largest count, but its value is returned.",
        source="Ding et al. 2018 (arXiv 1805.10559), noisy max that returns the maximum",
        run=noisy_max_value,
        pair=([0, 0, 0, 0, 0], [1, 1, 1, 1, 1]),
        # max <= v with v < 0 requires all five noises <= v: a factor (e^(1/2))^5 between the
        # datasets.
        true_epsilon=Enclosure.exactly(Fraction(5, 2)),
        runs=5000,
        twin=_INDEX,
    ),
    Entry(
        name="noisy-max-half-noise",
        number=14,
        sentence="The noise is for counts that all change in one direction, but one rises while "
        "the others fall.",
        source="report noisy max with the scale for counts that move one way; Dwork and Roth 2014, "
        "section 3.3",
        run=partial(noisy_max, scale=1),
        pair=_HALF_PAIR,
        true_epsilon=narrow(_half_noise, 64),
        runs=2000,
        twin=_INDEX,
    ),
    Entry(
        name="noisy-max-one-draw",
        number=15,
        sentence="The same draw is added to every count, so it cancels when counts are compared.",
        source="a draw of one number instead of one for each count",
        run=partial(noisy_max, shared=True),
        pair=([0, 1, 1, 1, 1], [1, 0, 0, 0, 0]),
        true_epsilon=Enclosure.infinite(),
        runs=100,
        twin=_INDEX,
    ),
)

# -- exponential ----------------------------------------------------------------------------------

_UNIT: Final = 1000
_HALF: Final = 1648
_WHOLE: Final = 2718
_OTHERS: Final = 8
# The first candidate's score falls below those of the eight others, which rise.
_PAIR: Final = ([1] + [0] * _OTHERS, [0] + [1] * _OTHERS)


def exponential(
    scores: Sequence[int], n: int, rng: np.random.Generator, *, weight: int = _HALF
) -> Integers:
    r"""A candidate chosen at epsilon = 1 with weights 1.648 and 1 (e^(1/2) per unit of score). With
    2.718 (e per unit), the change of the sum of weights costs privacy, too.
    """
    ends = np.cumsum([weight if score else _UNIT for score in scores])
    chosen: Integers = np.searchsorted(ends, rng.integers(ends[-1], size=n), side="right")
    return chosen.astype(np.int64)


def _undivided() -> arb:
    # The probabilities of the first candidate are w/(w + 8) and 1/(1 + 8 w).
    w = Fraction(_WHOLE, _UNIT)
    return ball(w * (1 + _OTHERS * w) / (w + _OTHERS)).log()


def selected(
    scores: Sequence[int] | Integers, n: int, rng: np.random.Generator, *, by: Selection
) -> Integers:
    r"""Indices chosen by a mechanism of dpcore.selection."""
    source = seeded(rng)
    return np.array([by.release(scores, rng=source) for _ in range(n)], dtype=np.int64)


def _coins_undivided() -> arb:
    # A gap of 1 gives heads with probability x = 1/e. The probabilities of the first candidate are
    # E[1/(1 + Bin(8, x))] = (1 - (1 - x)^9)/(9 x) and x/9.
    x = arb(-1).exp()
    return ((1 - (1 - x) ** (_OTHERS + 1)) / x**2).log()


MEDIAN: Final = Selection(epsilon=1, sensitivity=2, rule=Rule.EXPONENTIAL)


def median_scores(values: Sequence[int], candidates: Integers) -> Integers:
    r"""-max(0, 2 #{x < r} - n, n - 2 #{x <= r}) for each candidate r, the score of ``dpcore release
    quantile``: it changes by at most 2 if a value is replaced.
    """
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, candidates, side) for side in ("left", "right"))
    return -np.maximum(0, np.maximum(2 * below - len(ordered), len(ordered) - 2 * upto))


def median(
    values: Sequence[int], n: int, rng: np.random.Generator, *, among_values: bool = False
) -> Integers:
    r"""The median by the exponential mechanism, among 0 to 8 or among the values of the data."""
    candidates = np.unique(values) if among_values else np.arange(9)
    return candidates[selected(median_scores(values, candidates), n, rng, by=MEDIAN)]


_MEDIAN_PAIR: Final = ([0, 0, 1, 8], [0, 7, 1, 8])

_EXPONENTIAL: Final = (
    Entry(
        name="exponential-undivided",
        number=26,
        sentence="The exponential mechanism uses epsilon instead of epsilon/2, although all "
        "other weights change as well.",
        source="the factor 2 of the exponential mechanism left out although scores rise and fall",
        run=partial(exponential, weight=_WHOLE),
        pair=_PAIR,
        true_epsilon=narrow(_undivided, 64),
        runs=3000,
        twin=Twin(name="exponential", run=exponential),
    ),
    Entry(
        name="permute-and-flip-undivided",
        number=55,
        sentence="The coins of permute-and-flip use epsilon instead of epsilon/2, although scores "
        "rise and fall.",
        source="permute-and-flip (McKenna and Sheldon 2020, arXiv 2010.12603) with the exponent "
        "for scores that change in one direction",
        run=partial(selected, by=Selection(epsilon=2, sensitivity=1)),  # probability e^(-gap)
        pair=_PAIR,
        true_epsilon=narrow(_coins_undivided, 64),
        runs=1000,
        twin=Twin(
            name="permute-and-flip", run=partial(selected, by=Selection(epsilon=1, sensitivity=1))
        ),
    ),
    Entry(
        name="median-among-values",
        number=56,
        sentence="The exponential mechanism chooses the median among the values of the data, so "
        "its output is someone's value.",
        source="Smith 2011 draws uniformly between two sorted values; here one of them is returned",
        run=partial(median, among_values=True),
        pair=_MEDIAN_PAIR,
        true_epsilon=Enclosure.infinite(),
        runs=300,
        twin=Twin(name="median", run=median),
    ),
)

# A count of 1 reaches 6 with probability a^5/(1 + a) = 0.1100..., a = e^(-1/3); one of three counts
# with 0.2951...
_REACHED: Final = 6
_OF_ONE_KEY: Final = Fraction("0.111")
_OF_THREE_KEYS: Final = Fraction("0.296")


def unknown_keys(rows: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Which of three keys are released: those whose noisy count reaches 6. Only one user has these
    keys, with ``rows`` rows for each. At epsilon = 1 for three rows the scale is 3.
    """
    return (rows > 0) * (rows + laplace(3, (n, 3), rng) >= _REACHED).astype(np.int64)


_KEYS: Final = (
    Entry(
        name="threshold-for-one-key",
        number=54,
        sentence="Unknown keys are released above a threshold that assumes one key per user, but a "
        "user has three.",
        source="the delta of partition selection for one key, in a table where users have several",
        run=unknown_keys,
        delta=_OF_ONE_KEY,
        true_epsilon=Enclosure.infinite(),
        runs=1500,
        twin=Twin(name="threshold-for-three-keys", run=unknown_keys, delta=_OF_THREE_KEYS),
    ),
)

ENTRIES: Final = (*_SPARSE_VECTOR, *_SELECTION, *_EXPONENTIAL, *_KEYS)
