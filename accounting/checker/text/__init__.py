r"""Text of a certificate: read strictly, field by field."""
