r"""Protocols for noisy sums over many users: encodings, functionalities and runs."""
