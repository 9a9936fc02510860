r"""Running sums of a stream with exact noise: binary tree, doubling blocks, square root.

``TreeSum``, ``DoublingSum`` and ``SquareRootSum`` are configurations; ``start()`` returns a stream
that takes items one after another. ``accounting.guarantee`` derives the guarantee of each. Proofs:
docs/proofs/continual.md.
"""

from dpcore.continual.continual_sum import ContinualSum, RunningSum, Total
from dpcore.continual.square_root import SquareRootSum
from dpcore.continual.tree import DoublingSum, TreeSum

__all__ = ["ContinualSum", "DoublingSum", "RunningSum", "SquareRootSum", "Total", "TreeSum"]
