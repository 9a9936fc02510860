r"""Descriptions of releases: immutable data with text and JSON forms."""
