r"""Privatizers: the release of a batch of rewards, and its guarantee."""
