r"""Claims under test: one epsilon and delta, or a whole curve."""
