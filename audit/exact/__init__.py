r"""Exact: two known output laws give a proof or a refutation."""
