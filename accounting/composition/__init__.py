r"""Composition of many releases by the tightest applicable method."""
