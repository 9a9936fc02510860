r"""Composition of privacy losses (PLDs): proven bounds on the total loss of any list of rounds."""
