r"""Privatizers: how a batch of rewards is released, and what that promises."""
