r"""Encodings, protocols, functionalities and their sizes."""
