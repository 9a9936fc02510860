r"""Composition: proven bounds on the total privacy loss of any list of rounds (PLDs)."""
