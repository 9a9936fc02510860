r"""Private choices: the best of several candidates, and counts above a threshold.

``selection`` chooses by integer scores (permute-and-flip, exponential mechanism), ``threshold``
releases the noisy counts that reach a threshold, for keys that are not known beforehand.
"""

from dpcore.selection.partition_selection import NoisyThreshold
from dpcore.selection.selection import Rule, Selection

__all__ = ["NoisyThreshold", "Rule", "Selection"]
