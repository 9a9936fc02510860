r"""Policies: which arms to pull next, based only on released sums."""
