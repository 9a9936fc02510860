r"""The privacy curve of one release, and the computation of the curve of a composition."""
