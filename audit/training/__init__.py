r"""Audits of model training: of a whole run by its canaries, or of a single training step."""
