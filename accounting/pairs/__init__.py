r"""Pairs: the two output laws of neighbours, their worst case, and their privacy losses."""
