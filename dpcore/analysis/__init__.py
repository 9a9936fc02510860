r"""Series and contour integrals that give proven bounds of masses and tails."""
