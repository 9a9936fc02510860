r"""Fourier: the total loss of any list of releases, from a sum along a line, with proven ends."""
