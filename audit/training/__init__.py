r"""Audit of model training: by canaries of one run, or a single training step in detail."""
