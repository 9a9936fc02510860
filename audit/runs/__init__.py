r"""Draw outputs in blocks, in one process or several."""
