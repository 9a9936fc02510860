r"""Search for the neighbouring pair that best reveals a violation."""
