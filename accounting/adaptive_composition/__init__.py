r"""Adaptive composition: privacy filters and odometers."""
