r"""The exact layer: prove or refute a claim from two known output laws."""
