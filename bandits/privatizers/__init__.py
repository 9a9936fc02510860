r"""Privatizers, which release batches of rewards with a guarantee."""
