r"""Sampling: the source of randomness, and exact ways to turn its bits into draws."""
