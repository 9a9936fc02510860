r"""A proof checker for certificates: integer arithmetic and the standard library only."""
