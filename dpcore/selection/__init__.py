r"""Private selection: the best of several candidates, and counts above a threshold.

``selection`` chooses by integer scores (permute-and-flip, exponential mechanism), and releases the
noisy counts that reach a threshold; ``noisy_max_and_thresholds`` compares noisy numbers (report
noisy max, sparse vector).
"""

from dpcore.selection.noisy_max_and_thresholds import AboveThreshold, MaxNoise, NoisyMax
from dpcore.selection.selection import NoisyThreshold, Rule, Selection

__all__ = ["AboveThreshold", "MaxNoise", "NoisyMax", "NoisyThreshold", "Rule", "Selection"]
