r"""Interoperation with dp-accounting: events and loss distributions, both ways."""
