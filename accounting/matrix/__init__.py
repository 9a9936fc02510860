r"""Correlated noise: strategy matrices, participation patterns, and sensitivities."""
