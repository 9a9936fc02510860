r"""Outputs: what a target returned, compared exactly, and the features that are tested."""
