r"""Resume: the state file of an audit, and going on where it stopped."""
