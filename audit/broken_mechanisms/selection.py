r"""Bugs in selection: sparse vector, noisy max, the exponential mechanism, permute-and-flip.

The sparse vector technique reports which of many answers reach a noisy threshold. Here the
threshold is 0 plus noise, and each answer differs by at most 1 between neighbours, in either
direction. Only answers above the threshold should cost privacy. Four published variants do not have
this guarantee, because they omit noise or never stop. Algorithms are numbered as in Figure 1 of
Lyu, Su and Li, "Understanding the Sparse Vector Technique for Differential Privacy" (arXiv
1603.01699); Algorithm 1 is correct.

Report noisy max: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014),
section 3.3. The exponential mechanism (McSherry and Talwar, "Mechanism Design via Differential
Privacy", 2007) chooses a candidate of score u with probability proportional to e^(epsilon u/2).
Here scores are 0 or 1. The weight e^(epsilon/2) is rounded down to a multiple of 1/1000, so that
candidates can be drawn with exact integers; the mechanism then costs slightly less than epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from flint import arb
from numpy.typing import NDArray

from audit.broken_mechanisms import laplace, seeded
from dpcore import DiscreteLaplace
from dpcore.numbers.arrays import Integers
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import RationalLike
from dpcore.selection import Rule, Selection

_REACH: Final = 256
_Scales: TypeAlias = tuple[RationalLike, RationalLike]


def _reached(
    answers: Sequence[int], scales: _Scales, n: int, rng: np.random.Generator
) -> tuple[Integers, NDArray[np.bool_]]:
    # The noisy answers, and whether each is at or above the noisy threshold; one row per run.
    threshold = laplace(scales[0], (n, 1), rng)
    noisy: Integers = np.asarray(answers) + laplace(scales[1], (n, len(answers)), rng)
    return noisy, noisy >= threshold


def _first(values: Integers, reached: NDArray[np.bool_]) -> Integers:
    # The number of answers before the first that is above the threshold, and the value of that
    # answer; if there is none, the number of all answers and 0.
    below = np.where(reached.any(axis=1), reached.argmax(axis=1), reached.shape[1])
    padded = np.pad(values, ((0, 0), (0, 1)))
    return np.stack((below, padded[np.arange(len(padded)), below]), axis=1)


def sparse_vector(
    answers: Sequence[int],
    n: int,
    rng: np.random.Generator,
    *,
    scales: _Scales,
    cutoff: int | None = None,
) -> Integers:
    r"""Report whether each answer reaches the threshold, until ``cutoff`` answers do.

    Rows contain 1 for "above", 0 for "below" and -1 for "not answered". ``scales`` are the noise
    scales of the threshold and of the answers. ``cutoff`` is c in Algorithms 1 and 4; None never
    stops. At epsilon = 1, Algorithm 1 spends 1/2 on the threshold (scale 2), and 1/2 on the answers
    (scale 2 c/(1/2) = 4 c). Algorithm 4 spends 1/4 on the threshold and 3/4 on the answers, for
    every c. Algorithm 6 has scale 2 for both, and no cutoff.
    """
    above = _reached(answers, scales, n, rng)[1].astype(np.int64)
    before = np.cumsum(above, axis=1) - above
    return above if cutoff is None else np.where(before >= cutoff, -1, above)


def sparse_vector_value(
    answers: Sequence[int],
    n: int,
    rng: np.random.Generator,
    *,
    scales: _Scales = (4, 8),
    fresh: RationalLike = 2,
) -> Integers:
    r"""Rows (k, value): answer k, counted from 0, is the first that reaches the threshold.

    Algorithm 1 with c = 1 finds that answer, and its value is released with new noise of scale
    ``fresh``. Without such an answer, the row is (number of answers, 0). By default a quarter of
    epsilon is spent on the threshold (scale 4), a quarter on the comparisons (scale 8), and half on
    the released value (scale 2).
    """
    reached = _reached(answers, scales, n, rng)[1]
    return _first(np.asarray(answers) + laplace(fresh, reached.shape, rng), reached)


def sparse_vector_roth(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Like :func:`sparse_vector_value`, but the released value is the compared noisy answer.

    This is Algorithm 3 with c = 1; the noise of answers and threshold has scale 2. The released
    value is an upper bound on the noisy threshold, so the answers below also cost privacy.
    """
    return _first(*_reached(answers, (2, 2), n, rng))


def sparse_vector_gap(
    answers: Sequence[int], n: int, rng: np.random.Generator, *, public: bool = False
) -> Integers:
    r"""Rows (k, gap): answer k, counted from 0, is the first that reaches the threshold.

    The gap is the noisy answer minus the noisy threshold, with the scales of Algorithm 1 for c = 1.
    If the threshold is ``public``, it has no noise, and all of epsilon is spent on the answers.
    """
    threshold = 0 if public else laplace(2, (n, 1), rng)
    noise = laplace(2 if public else 4, (n, len(answers)), rng)
    lead: Integers = np.asarray(answers) + noise - threshold
    return _first(lead, lead >= 0)


def sparse_vector_stoddard(answers: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""Sparse vector with a noisy threshold, noiseless answers, and no stop (Algorithm 5)."""
    threshold = laplace(2, (n, 1), rng)
    return (np.asarray(answers) >= threshold).astype(np.int64)


def row_mass(row: Sequence[int], answers: Sequence[int], scales: _Scales) -> arb:
    r"""The probability of the output ``row`` of a sparse vector mechanism.

    The answers with a 1 in ``row`` reach the noisy threshold, and those with a 0 do not; answers
    with another entry were not queried. ``scales`` are the noise scales of the threshold and of the
    answers. The result encloses the probability: the terms of noisy thresholds up to 256 in
    absolute value are summed, and the sum of all other terms is bounded.
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


def row_loss(
    row: Sequence[int], pair: Sequence[Sequence[int]], scales: _Scales, *, released: int = 0
) -> arb:
    r"""The privacy loss of the output ``row``: ln(P/P'), plus ``released``.

    P and P' are the probabilities of ``row`` for the first and the second list of answers in
    ``pair``. ``released`` is the privacy loss of a value that is released in addition.
    """
    first, second = (row_mass(row, answers, scales) for answers in pair)
    return (first / second).log() + released


# -- selection ------------------------------------------------------------------------------------


def noisy_max(
    counts: Sequence[int], n: int, rng: np.random.Generator, *, scale: int = 2, shared: bool = False
) -> Integers:
    r"""The index of the largest noisy count, or the first such index if there are several.

    At epsilon = 1 the correct noise has scale 2/epsilon = 2 and is drawn separately for each count;
    if ``shared`` is true, all counts have the same draw. Scale 1 suffices only if all counts change
    in the same direction; but between neighbours one count may grow while the others fall.
    """
    noisy: Integers = np.asarray(counts) + laplace(scale, (n, 1 if shared else len(counts)), rng)
    return np.asarray(noisy.argmax(axis=1))


def noisy_max_value(counts: Sequence[int], n: int, rng: np.random.Generator) -> Integers:
    r"""The largest noisy count itself, with the noise of :func:`noisy_max`."""
    noisy: Integers = np.asarray(counts) + laplace(2, (n, len(counts)), rng)
    return np.asarray(noisy.max(axis=1))


def half_noise_loss() -> arb:
    r"""The privacy loss of :func:`noisy_max` with scale 1, at the output 0 (the first index)."""

    # The first count wins if no other noisy count exceeds it. For ``row_mass`` the noise of the
    # first count is the threshold, and another count wins if it is larger by at least 1: its answer
    # is (count - first count - 1).
    def wins(counts: Sequence[int]) -> arb:
        behind = [other - counts[0] - 1 for other in counts[1:]]
        return row_mass([0] * len(behind), behind, (1, 1))

    return (wins([1, 1, 1, 1, 1]) / wins([0, 2, 2, 2, 2])).log()


# -- exponential ----------------------------------------------------------------------------------

_UNIT: Final = 1000
_HALF: Final = 1648
_WHOLE: Final = 2718
_OTHERS: Final = 8


def exponential(
    scores: Sequence[int], n: int, rng: np.random.Generator, *, weight: int = _HALF
) -> Integers:
    r"""The index that the exponential mechanism chooses for scores of 0 or 1.

    At epsilon = 1 the correct weights are 1 and 1.648, a factor of e^(1/2) per unit of score. With
    2.718, a factor of e, the mechanism costs more than epsilon, because the sum of the weights
    depends on the data, too.
    """
    ends = np.cumsum([weight if score else _UNIT for score in scores])
    chosen: Integers = np.searchsorted(ends, rng.integers(ends[-1], size=n), side="right")
    return chosen.astype(np.int64)


def undivided_loss() -> arb:
    r"""The privacy loss of :func:`exponential` with the weight w = 2.718, at candidate 1 of 9.

    The candidate has probability w/(w + 8) on one dataset, and 1/(1 + 8 w) on the other.
    """
    w = Fraction(_WHOLE, _UNIT)
    return ball(w * (1 + _OTHERS * w) / (w + _OTHERS)).log()


def selected(
    scores: Sequence[int] | Integers, n: int, rng: np.random.Generator, *, by: Selection
) -> Integers:
    r"""The indices chosen in n independent runs of ``by``, a mechanism of dpcore.selection."""
    source = seeded(rng)
    return np.array([by.release(scores, rng=source) for _ in range(n)], dtype=np.int64)


def permute_and_flip(
    scores: Sequence[int], n: int, rng: np.random.Generator, *, epsilon: int
) -> Integers:
    r"""The index chosen by permute-and-flip for sensitivity 1.

    A candidate whose score is 1 below the largest is accepted with probability e^(-epsilon/2).
    """
    return selected(scores, n, rng, by=Selection(epsilon=epsilon, sensitivity=1))


def undivided_coins_loss() -> arb:
    r"""The privacy loss of :func:`permute_and_flip` at epsilon = 2, at candidate 1 of 9.

    A score that is 1 below the largest is accepted with probability x = 1/e. The candidate has
    probability E[1/(1 + Bin(8, x))] = (1 - (1 - x)^9)/(9 x) on one dataset, and x/9 on the other.
    """
    x = arb(-1).exp()
    return ((1 - (1 - x) ** (_OTHERS + 1)) / x**2).log()


MEDIAN: Final = Selection(epsilon=1, sensitivity=2, rule=Rule.EXPONENTIAL)


def median_scores(values: Sequence[int], candidates: Integers) -> Integers:
    r"""The score -max(0, 2 #{x < r} - n, n - 2 #{x <= r}) of each candidate r for n values x.

    ``dpcore release quantile`` uses this score. It changes by at most 2 if a value is replaced.
    """
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, candidates, side) for side in ("left", "right"))
    return -np.maximum(0, np.maximum(2 * below - len(ordered), len(ordered) - 2 * upto))


def median(
    values: Sequence[int], n: int, rng: np.random.Generator, *, among_values: bool = False
) -> Integers:
    r"""The median, chosen by the exponential mechanism from the candidates 0, ..., 8.

    If ``among_values`` is true, the candidates are the values themselves.
    """
    candidates = np.unique(values) if among_values else np.arange(9)
    return candidates[selected(median_scores(values, candidates), n, rng, by=MEDIAN)]


_REACHED: Final = 6


def unknown_keys(rows: int, n: int, rng: np.random.Generator) -> Integers:
    r"""Three numbers, one per key: 1 if the key is released because its noisy count reaches 6.

    Only one user has these keys, with ``rows`` rows for each. The noise has scale 3, because at
    epsilon = 1 a user may have three rows in total.
    """
    return (rows > 0) * (rows + laplace(3, (n, 3), rng) >= _REACHED).astype(np.int64)
