r"""Outputs: what a target returned, kept exactly, and the features that are looked at."""
