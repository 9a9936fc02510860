r"""Private selection: the best of several candidates, and counts above a threshold.

``exponential_mechanism`` chooses by integer scores (also permute-and-flip), and releases the noisy
counts that reach a threshold; ``sparse_vector_and_noisy_max`` compares noisy numbers.
"""

from dpcore.selection.exponential_mechanism import NoisyThreshold, Rule, Selection
from dpcore.selection.sparse_vector_and_noisy_max import AboveThreshold, MaxNoise, NoisyMax

__all__ = ["AboveThreshold", "MaxNoise", "NoisyMax", "NoisyThreshold", "Rule", "Selection"]
