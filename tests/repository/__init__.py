"""Tests of the repository: layers, pages, proofs and commands."""
