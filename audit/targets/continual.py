r"""Running sums of a stream as a target.

    continual:tree,horizon=64,epsilon=1
    continual:square-root,horizon=64,epsilon=1,delta=1e-6,high=3,unit=1/4

The first word is the mechanism: tree, doubling or square-root. The other words are arguments of
``accounting.calibration.calibrate_continual_sums.calibrate_sum``. A dataset is a stream, given as a
list of ``horizon`` items. The two datasets of the pair differ in the first item, which is contained
in more noisy sums than any other item. An output is the list of the running sums after each item,
as integer multiples of ``unit``, or of ``unit``/``grid`` for the mechanism square-root.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accounting.calibration.calibrate_continual_sums import calibrate_sum
from audit.targets.target import Catalogued, read_words, typed
from dpcore.continual_sums import ContinualSum, SquareRootSum
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import Rng, SeededRng

_ITEMS: Final = ("low", "high", "unit")
_SCALE: Final = 60
_FEATURES: Final = (
    "coordinate:0",
    "audit.targets.continual:doubled",
    "audit.targets.continual:weighed",
)


def read_continual(spelling: str, words: str, *, seeded: bool = True) -> Catalogued:
    r"""Build the target that the text ``words`` after "continual:" describes."""
    keys, needed = ("horizon", "epsilon", "delta", *_ITEMS), ("horizon", "epsilon")
    mechanism, given = read_words(
        spelling, words, keys, needed, owner="a continual sum", whole=("horizon",)
    )
    found = calibrate_sum(mechanism, **given)
    epsilon, delta = found.calibration.epsilon, found.calibration.delta
    return target_of(found.setting, epsilon, delta, spelling=spelling, seeded=seeded)


def target_of(
    setting: ContinualSum,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    *,
    spelling: str,
    seeded: bool = True,
) -> Catalogued:
    r"""Build a target that releases running sums, with features that reveal the first item."""
    grid = setting.grid if isinstance(setting, SquareRootSum) else 1

    def require_stream(dataset: Any, name: str) -> None:
        if not isinstance(dataset, list) or len(dataset) != setting.horizon:
            reason = f"must be a stream, given as a list of {setting.horizon} items"
            raise InvalidParameter(name, dataset, reason)

    def held(dataset: Any, name: str) -> None:
        require_stream(dataset, name)
        stream = setting.start(rng=SeededRng(0))
        for item in dataset:
            stream.add(item)  # refuses an item that the mechanism does not accept

    def run(dataset: Any, n: int, rng: Rng) -> NDArray[np.int64]:
        require_stream(dataset, "dataset")
        sums = np.zeros((n, setting.horizon), dtype=np.int64)
        for row in sums:
            stream = setting.start(rng=rng)
            totals = [stream.add(item).value for item in dataset]
            row[:] = [int(total / setting.unit * grid) for total in totals]
        return sums

    low, high = (typed(Fraction(item)) for item in (setting.low, setting.high))
    rest = [low] * (setting.horizon - 1)
    return Catalogued.of(
        spelling,
        run,
        seeded=seeded,
        own={"held": held},
        pair=([low, *rest], [high, *rest]),
        epsilon=epsilon,
        delta=delta,
        relation=setting.scope.relation,
        features=_FEATURES,
    )


def doubled(sums: Any) -> int:
    r"""The total of the running sums after 1, 2, 4, ... items, each of which is one tree node."""
    return sum(int(sums[(1 << k) - 1]) for k in range(len(sums).bit_length()))


def weighed(sums: Any) -> int:
    r"""A weighted total of all running sums, which detects noise that is redrawn for each sum.

    The weight of a running sum is 1/k if a tree computes it from k nodes. The result is in
    sixtieths, and each weight is rounded down to a multiple of 1/60.
    """
    return int(np.asarray(sums, dtype=np.int64) @ _weights(len(sums)))


@cache
def _weights(count: int) -> NDArray[np.int64]:
    return np.array([_SCALE // t.bit_count() for t in range(1, count + 1)], dtype=np.int64)
