r"""Search: find the pair of neighbours that shows a breach."""
