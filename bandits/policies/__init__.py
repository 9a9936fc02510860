r"""Policies: which arms to pull next, based on released sums only."""
