r"""Exact audits: prove or refute a claim from two known output laws."""
