"""Discretised privacy losses of one round, which ``accounting.pld_composition`` composes."""
