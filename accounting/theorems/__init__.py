r"""Theorems: conversions and compositions of guarantees, filters and odometers."""
