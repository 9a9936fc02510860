r"""Private selection: the best of several candidates, and counts above a threshold.

``selection`` chooses by integer scores (permute-and-flip, exponential mechanism), ``threshold``
releases the noisy counts that reach a threshold, for keys that are not known beforehand.
"""

from dpcore.selection.selection import Rule, Selection
from dpcore.selection.threshold import NoisyThreshold

__all__ = ["NoisyThreshold", "Rule", "Selection"]
