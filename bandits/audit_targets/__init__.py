r"""Audit targets, which are the server's views of bandit runs."""
