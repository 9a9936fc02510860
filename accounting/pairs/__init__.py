r"""Pairs of output laws on neighbouring datasets, their worst case, and their privacy losses."""
