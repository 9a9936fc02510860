r"""Protocols in which many users add noise to one sum: encodings, functionalities, runs."""
