"""Tests of the house itself: its layers, pages, proofs and promises."""
