r"""Formatting of results: numbers as JSON, shortened texts, named rows as lines."""
