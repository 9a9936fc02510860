"""Discretised privacy losses of one round; numerical_composition adds the losses of rounds."""
