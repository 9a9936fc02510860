r"""The commands of accounting, one per file, registered in pyproject.toml."""
