r"""Outputs of a target, parsed and compared exactly."""
