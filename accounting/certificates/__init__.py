r"""Certificates: mechanisms and their guarantee, in a file that an independent checker verifies."""
