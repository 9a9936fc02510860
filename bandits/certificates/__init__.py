r"""Certificates of runs: what a run released and what that costs."""
