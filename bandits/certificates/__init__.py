r"""Certificates of runs: the releases of a run and their privacy cost."""
