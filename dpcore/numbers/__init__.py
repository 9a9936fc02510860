r"""Numbers: exact rational parameters, enclosures by balls, rounding with a direction."""
