r"""Exact rational parameters, enclosures by ball arithmetic, and directed rounding."""
