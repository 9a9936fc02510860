r"""Confidence radii of released means."""
