r"""Audits of model training: canaries in one run, or one training step in detail."""
