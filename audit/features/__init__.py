r"""Features: values computed from the outputs of a mechanism and tested in their place."""
