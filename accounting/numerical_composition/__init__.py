r"""Proven bounds on the composed privacy loss of any list of releases, by a contour integral."""
