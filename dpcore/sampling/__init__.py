r"""The source of randomness, and exact samplers from random bits."""
