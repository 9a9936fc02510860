r"""Noise laws on the integers, with their masses, tails and samplers."""
