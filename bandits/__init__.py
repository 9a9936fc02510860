r"""Learning through certified mechanisms: what the noise costs a bandit, and what it protects."""
