r"""Features: values computed from an output, such as a digit or a length, that are tested."""
