r"""One release: the privacy curve and guarantee of a mechanism, sampled or not."""
