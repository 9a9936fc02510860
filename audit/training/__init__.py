r"""Audit how a model was trained: by canaries of one run, or one training step from the inside."""
