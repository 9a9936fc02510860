r"""Baselines: other methods' bounds from the same runs; they never decide."""
