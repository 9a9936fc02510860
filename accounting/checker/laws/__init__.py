r"""Laws of the checker: masses and losses once more, in mpmath."""
