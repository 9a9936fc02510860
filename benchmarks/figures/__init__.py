r"""``make figures``: regenerate every plot and table of the documentation from seeds.

``python -m benchmarks.figures`` runs the studies of this package and writes ``docs/figures``: their
pictures, ``results.json`` with every number of the tables, and ``README.md``, which is rendered
from ``results.json`` alone.
"""
