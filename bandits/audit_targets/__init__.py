r"""Audit targets: the server's view of a bandit run."""
