r"""Private selection: the best of several candidates, and counts above a threshold.

``exponential_mechanism`` has permute-and-flip and the exponential mechanism on integer scores,
``sparse_vector_and_noisy_max`` compares noisy numbers, and ``partition_selection`` releases the
keys whose noisy counts reach a threshold.
"""

from dpcore.selection.exponential_mechanism import Rule, Selection
from dpcore.selection.partition_selection import NoisyThreshold
from dpcore.selection.sparse_vector_and_noisy_max import AboveThreshold, MaxNoise, NoisyMax

__all__ = ["AboveThreshold", "MaxNoise", "NoisyMax", "NoisyThreshold", "Rule", "Selection"]
