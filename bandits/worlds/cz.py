r"""The simulated instances of Chowdhury and Zhou, as the code released with the paper draws them.

K = 10 arms with rewards Normal(mean, 0.1^2) clipped to [0, 1]; instance i has means
gap u + (1 - gap)/2, u uniform from numpy's legacy generator under seed i; gap 0.5 (easy) and 0.1
(hard); 20 instances; batches of that code grow by 4. docs/errata.md says where this is settled.

``tkms/binary`` is for the shuffled bits of Tenenbaum, Kaplan, Mansour and Stemmer, whose paper has
no experiments. Its means are those of ``cz/easy``, so that the two compare, here chances of a
reward of 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bandits.worlds.environment import Bernoulli, ClippedNormal, cz_instance
from bandits.worlds.preset import Preset, Simulated

__all__ = ["BINARY", "CZ_ALGORITHMS", "EASY", "HARD", "binary_instance", "easy_instance"]
__all__ += ["hard_instance"]

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


def binary_instance(seed: int, arms: int = 10) -> Bernoulli:
    r"""Bernoulli arms whose means are the centers of ``cz_instance("0.5", seed)``.

    >>> [round(mean, 3) for mean in binary_instance(0).means[:3]]
    [0.524, 0.608, 0.551]
    """
    return Bernoulli(means=cz_instance("0.5", seed, arms=arms).centers)


BINARY: Final = Preset(
    name="tkms/binary",
    sentence="10 arms, rewards 0 or 1, means uniform in [0.25, 0.75]",
    source=Simulated(instance=binary_instance),
    algorithms=("sdp-ae", "vb-sdp-ae", "dist-dp-se", "se"),
    epsilons=("0.1", "0.5", "1"),
    horizon=10**6,
    arms=10,
)
