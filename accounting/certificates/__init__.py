r"""Certificates: mechanisms and their guarantees in a file that an independent checker verifies."""
