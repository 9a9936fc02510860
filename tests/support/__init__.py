"""Shared code of the tests: datasets, reference implementations, real commands."""
