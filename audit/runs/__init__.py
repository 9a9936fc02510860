r"""Runs: drawing outputs in blocks, alone or in several processes."""
