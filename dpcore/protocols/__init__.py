r"""Protocols: many users add noise to one sum; encodings, instances, functionalities, rounds."""
