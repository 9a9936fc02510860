r"""Features: properties of an output to test, such as a digit, a length or a user's function."""
