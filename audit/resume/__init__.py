r"""Resume an audit from its state file."""
