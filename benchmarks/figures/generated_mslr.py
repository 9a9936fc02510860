r"""Generated data in the format of MSLR-WEB10K, which cannot be redistributed.

Pairs lie around 50 centers, far apart in the space of the 136 features. The result of k-means then
does not depend on rounding, so every machine has the same arms.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bandits.worlds.arm_presets import FEATURES

__all__ = ["letor_text"]

_CLUSTERS: Final = 50
_PAIRS: Final = 60
_APART: Final = 1000.0
_MOST_RELEVANT: Final = 4
_LOW, _HIGH = 0.05, 0.55


def letor_text(seed: int) -> str:
    r"""Return LETOR text with 50 clusters of 60 pairs, with mean rewards in about [0.05, 0.55].

    >>> len(letor_text(1).splitlines()), letor_text(1).split(maxsplit=2)[1]
    (3000, 'qid:1')
    """
    draws = np.random.default_rng(seed)
    lines = []
    for cluster, chance in enumerate(draws.uniform(_LOW, _HIGH, _CLUSTERS), start=1):
        center = draws.uniform(0, _APART, FEATURES)
        near = center + draws.standard_normal((_PAIRS, FEATURES))
        for relevance, row in zip(
            draws.binomial(_MOST_RELEVANT, chance, _PAIRS), near, strict=True
        ):
            pairs = " ".join(f"{i}:{value:.3f}" for i, value in enumerate(row, start=1))
            lines.append(f"{relevance} qid:{cluster} {pairs}\n")
    return "".join(lines)
