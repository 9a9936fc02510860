r"""Policies: bandit algorithms, which choose the next arms to pull from released sums alone."""
