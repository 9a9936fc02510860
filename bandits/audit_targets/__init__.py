r"""Audit targets for bandit algorithms: what the server sees in short runs."""
