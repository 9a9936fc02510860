r"""Doubt: what the code that runs really does."""
