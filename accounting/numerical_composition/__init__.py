r"""The composed privacy loss of any list of releases by a contour integral, with proven bounds."""
