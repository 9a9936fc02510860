r"""Replays: every privacy theorem of the papers, claimed against exact."""
