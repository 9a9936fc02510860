r"""Private selection: the best of several candidates, and counts above a threshold.

``exponential_and_permute_and_flip`` contains both mechanisms on integer scores,
``sparse_vector_and_noisy_max`` the mechanisms that compare noisy values, and
``partition_selection`` the release of keys whose noisy counts reach a threshold.
"""

from dpcore.selection.exponential_and_permute_and_flip import Rule, Selection
from dpcore.selection.partition_selection import NoisyThreshold
from dpcore.selection.sparse_vector_and_noisy_max import AboveThreshold, MaxNoise, NoisyMax

__all__ = ["AboveThreshold", "MaxNoise", "NoisyMax", "NoisyThreshold", "Rule", "Selection"]
