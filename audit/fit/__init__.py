r"""Fit: does a sampler draw from the law it claims?"""
