r"""``make figures``: every plot and table of the documentation, drawn again from seeds.

``python -m benchmarks.figures`` plays the studies of this package and writes ``docs/figures``: a
picture of each, ``results.json`` with every number of the tables, and ``README.md``, which is made
from ``results.json`` alone.
"""
