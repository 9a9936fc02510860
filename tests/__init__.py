"""Tests of the four packages and of the repository."""
