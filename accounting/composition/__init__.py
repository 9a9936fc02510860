r"""Composition of many releases with the tightest applicable method."""
