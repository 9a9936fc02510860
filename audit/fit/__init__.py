r"""Goodness of fit: does a sampler draw from the claimed law?"""
