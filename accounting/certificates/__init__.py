r"""Certificates: what was run and what it guarantees, in a file that anyone can check."""
