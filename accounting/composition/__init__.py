r"""Totals: what many releases cost together, by the narrowest method that applies."""
