r"""Benchmarks of speed, tightness and power against peers, with results as JSON."""
