r"""Confidence radii for released means."""
