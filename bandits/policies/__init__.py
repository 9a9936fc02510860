r"""Policies, which choose the next arms to pull from released sums only."""
