r"""Real failures of published packages, each with its source, its figure and its repaired twin.

``dpcore audit corpus`` installs each pinned package into an environment of its own and audits it.
An entry is data: one TOML file in ``audit/corpus/entries``, read by ``audit.corpus.entry``.
"""
