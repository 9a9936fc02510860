r"""Certificates: what was run and what it guarantees, in a file that an independent checker
verifies.
"""
