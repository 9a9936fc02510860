r"""Exact rational parameters, enclosures by balls, and directed rounding."""
