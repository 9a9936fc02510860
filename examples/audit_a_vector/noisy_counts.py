"""Five noisy counts, the third with too little noise: a target for docs/auditing.md.

One person can change one count by 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EPSILON = 0.5


def noisy_counts(counts: list[int], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Return n releases of the counts with two-sided geometric noise."""
    keep = np.full(len(counts), -np.expm1(-EPSILON))
    keep[2] = -np.expm1(-4 * EPSILON)  # the fault: a quarter of the scale
    shape = (n, len(counts))
    noise = rng.geometric(keep, shape) - rng.geometric(keep, shape)
    noisy: NDArray[np.int64] = np.asarray(counts) + noise
    return noisy
