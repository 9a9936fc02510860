r"""Plots: regret against time and epsilon."""
