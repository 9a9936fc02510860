r"""Protocols: what shuffled bits and distributed sums guarantee, and the noise to choose."""
