r"""Features: what is looked at in an output: a digit, a length, a map of the user's own."""
