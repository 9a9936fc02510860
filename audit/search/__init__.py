r"""Search for the pair of neighbouring datasets that best reveals a violation of a claim."""
