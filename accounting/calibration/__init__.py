r"""Calibration: the least noise, the most rounds or the largest rate for a guarantee."""
