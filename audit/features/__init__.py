r"""Features: properties of an output to test, such as a digit, a length or a map of one's own."""
