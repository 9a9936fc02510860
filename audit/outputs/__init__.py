r"""Parse the outputs of an audited mechanism, and compare them exactly."""
