r"""Test privacy claims on sampled outputs, and compute lower confidence bounds on epsilon."""
