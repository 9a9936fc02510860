r"""A proof checker for certificates, in integer arithmetic and with only the standard library."""
