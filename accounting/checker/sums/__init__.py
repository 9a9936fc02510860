r"""Sums of the checker: totals of losses by four independent methods."""
