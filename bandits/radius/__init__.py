r"""Radii: how far a released mean may lie from the true one."""
