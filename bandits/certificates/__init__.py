r"""Certificates that state the releases of a bandit run and their privacy cost."""
