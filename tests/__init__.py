"""The tests of the four packages, and of the house they live in."""
