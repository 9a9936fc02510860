r"""Tests of running sums of a stream: trees, doubling blocks, the square root."""
