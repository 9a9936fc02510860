r"""Single releases: the privacy curve and guarantee of a mechanism, with or without sampling."""
