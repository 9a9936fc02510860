r"""Audits of model training: of one training run by its canaries, or of one training step."""
