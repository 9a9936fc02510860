"""The tests of the four packages, and of the repository."""
