r"""Certificates of runs, which state the releases of a run and their privacy cost."""
