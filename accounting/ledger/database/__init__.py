r"""Databases of a ledger: the address, the location of an SQLite file, and transactions."""
