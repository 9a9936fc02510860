r"""Theorems: conversions between claims, composition of claims, filters and odometers."""
