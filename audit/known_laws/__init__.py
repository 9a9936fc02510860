r"""The exact layer: two known output laws give a proof or a refutation."""
