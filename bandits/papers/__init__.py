r"""Theorems of four papers on private bandits, compared with exact values."""
