r"""The corpus: real privacy failures of published packages, with sources and repaired twins."""
