r"""Policies: which arms to pull next, from released sums only."""
