r"""Audit reports as text, JSON and HTML."""
