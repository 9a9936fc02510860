r"""What others do, for comparison only: never a default, always by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from audit.confidence import read_level
from audit.event import Floats, Integers, read, read_worlds
from dpcore.enclosure import round_down
from dpcore.errors import InvalidParameter
from dpcore.parameter import RationalLike, integer

__all__ = ["clopper_pearson_split"]


def clopper_pearson_split(
    outputs: object, worlds: object, *, alpha: RationalLike = "0.05", seed: int
) -> float:
    r"""A baseline for comparison: threshold from one random half, bounds from the other.

    Of all events "output <= t" and "output > t", pointing to either world, the training half picks
    the one with the largest log ratio of Clopper-Pearson bounds, each at alpha/2; the same bound
    on the test half is returned (at least 0). Numbers only. Re-derived after the split method of
    jax_privacy's auditing.

    >>> from audit.confidence import draw_worlds
    >>> worlds = draw_worlds(4000, np.random.default_rng(1))
    >>> 5 < clopper_pearson_split(worlds.astype(int), worlds, seed=7) < 7
    True
    """
    level = round_down(read_level("alpha", alpha)) / 2
    reading = read(outputs)
    truth = read_worlds(worlds, len(reading))
    if bool((reading.codes >= 0).any()):
        raise InvalidParameter("outputs", outputs, "must be finite numbers for this baseline")
    order = np.random.default_rng(integer("seed", seed, at_least=0)).permutation(len(reading))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    thresholds = np.unique(reading.numbers[train])
    on_train = _log_ratios(reading.numbers[train], truth[train], thresholds, level)
    if not on_train.size:
        return 0.0
    event, place = np.unravel_index(int(np.argmax(on_train)), on_train.shape)
    chosen = thresholds[place : place + 1]
    on_test = _log_ratios(reading.numbers[test], truth[test], chosen, level)
    return max(0.0, float(on_test[event, 0]))


def _log_ratios(
    numbers: Floats, truth: NDArray[np.bool_], thresholds: Floats, level: float
) -> Floats:
    # Rows: "<= t" pointing to A, "> t" to A, "<= t" to B, "> t" to B.
    sides = [np.sort(numbers[~truth]), np.sort(numbers[truth])]
    below = [np.searchsorted(side, thresholds, side="right") for side in sides]
    runs = [len(side) for side in sides]
    inside = [below, [n - k for n, k in zip(runs, below, strict=True)]]
    return np.array(
        [
            _clopper_pearson_log_ratio(k[world], runs[world], k[1 - world], runs[1 - world], level)
            for world in (0, 1)
            for k in inside
        ]
    )


def _clopper_pearson_log_ratio(
    most: Integers, of_most: int, least: Integers, of_least: int, level: float
) -> Floats:
    lower = np.where(most > 0, betaincinv(np.maximum(most, 1), of_most - most + 1, level), 0.0)
    upper = np.where(
        least < of_least, betaincinv(least + 1, np.maximum(of_least - least, 1), 1.0 - level), 1.0
    )
    with np.errstate(divide="ignore"):
        return np.log(lower) - np.log(upper)
