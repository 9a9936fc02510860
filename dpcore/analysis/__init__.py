r"""Proven bounds on the masses and tails of noise laws, by series and contour integrals."""
