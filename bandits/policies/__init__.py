r"""Policies, which choose the next arms to pull using only released sums."""
