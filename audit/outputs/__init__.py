r"""Outputs of a target, compared exactly, and the features that are tested."""
