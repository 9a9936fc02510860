r"""Protocols: guarantees of shuffled bits and distributed sums, and calibration of their noise."""
