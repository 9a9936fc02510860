r"""The simulated instances of Chowdhury and Zhou, as the code released with the paper draws them.

K = 10 arms with rewards Normal(mean, 0.1^2) clipped to [0, 1]; instance i has means
gap u + (1 - gap)/2, u uniform from numpy's legacy generator under seed i; gap 0.5 (easy) and 0.1
(hard); 20 instances; batches of that code grow by 4. docs/errata.md says where this is settled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bandits.worlds.environment import ClippedNormal, cz_instance
from bandits.worlds.preset import Preset, Simulated

__all__ = ["CZ_ALGORITHMS", "EASY", "HARD", "easy_instance", "hard_instance"]

CZ_ALGORITHMS: Final = (
    "cdp-se",
    "ldp-se",
    "dist-dp-se",
    "dist-rdp-se",
    "dist-cdp-se",
    "dp-se",
    "se",
)
r"""The algorithms of the paper's figures, and elimination without privacy as their floor."""


def easy_instance(seed: int, arms: int) -> ClippedNormal:
    r"""Gap 0.5: means in [0.25, 0.75].

    >>> easy_instance(0, 10) == cz_instance("0.5", 0)
    True
    """
    return cz_instance("0.5", seed, arms=arms)


def hard_instance(seed: int, arms: int) -> ClippedNormal:
    r"""Gap 0.1: means in [0.45, 0.55].

    >>> hard_instance(0, 10) == cz_instance("0.1", 0)
    True
    """
    return cz_instance("0.1", seed, arms=arms)


EASY: Final = Preset(
    name="cz/easy",
    sentence="10 arms, means uniform in [0.25, 0.75], normal rewards clipped to [0, 1]",
    source=Simulated(instance=easy_instance),
    algorithms=CZ_ALGORITHMS,
    epsilons=("0.1", "0.5", "1"),
    horizon=10**6,
    schedule="released",
    arms=10,
)

HARD: Final = replace(
    EASY,
    name="cz/hard",
    sentence="10 arms, means uniform in [0.45, 0.55], normal rewards clipped to [0, 1]",
    source=Simulated(instance=hard_instance),
    horizon=10**7,
)
