r"""Tests of encodings, protocols, functionalities and their sizes."""
