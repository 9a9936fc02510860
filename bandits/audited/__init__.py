r"""Audit targets: what the server of a bandit run sees."""
