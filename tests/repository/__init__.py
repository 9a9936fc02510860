"""Tests of the repository itself: layers, pages, proofs and commands."""
