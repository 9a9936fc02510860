r"""Running sums of a stream with exact noise: tree, doubling blocks, square root.

``TreeSum``, ``DoublingSum`` and ``SquareRootSum`` say what is run; ``start()`` takes the items one
after another. What they guarantee is derived by ``accounting.guarantee``. Proofs:
docs/proofs/continual.md.
"""

from dpcore.continual.square_root import SquareRootSum
from dpcore.continual.stream import ContinualSum, DoublingSum, RunningSum, Total, TreeSum

__all__ = ["ContinualSum", "DoublingSum", "RunningSum", "SquareRootSum", "Total", "TreeSum"]
