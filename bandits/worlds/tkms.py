r"""Binary rewards, for the shuffled bits of Tenenbaum, Kaplan, Mansour and Stemmer.

The paper has no experiments. The means are those of ``cz/easy``, so that the two compare: instance
i has ten arms with means uniform in [0.25, 0.75] under seed i, here chances of a reward of 1.
"""

from __future__ import annotations

from typing import Final

from bandits.worlds.environment import Bernoulli, cz_instance
from bandits.worlds.preset import Preset, Simulated

__all__ = ["BINARY", "binary_instance"]


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
