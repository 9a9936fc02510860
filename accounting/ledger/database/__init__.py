r"""Databases of a ledger: which one, where an SQLite file lies, and how it is entered."""
