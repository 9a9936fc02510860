"""Discretised privacy losses of one round; ``accounting.pld_composition`` adds rounds."""
