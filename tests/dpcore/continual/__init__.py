r"""Running sums of a stream: trees, doubling blocks, the square root."""
