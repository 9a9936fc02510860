r"""The commands of accounting: each file is one of them, named in pyproject.toml."""
