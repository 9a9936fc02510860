r"""Noise on the reals, for accounting only: its laws, their losses, and those of samples."""
