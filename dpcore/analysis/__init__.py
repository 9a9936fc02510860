r"""Series and contour integrals that give proven bounds on masses and tails."""
