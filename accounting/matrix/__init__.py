r"""Correlated noise: strategy matrices, who takes part how often, and how far that moves them."""
