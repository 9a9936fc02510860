r"""Secure aggregation after Bonawitz et al. 2017: the server learns only a sum.

``aggregation`` runs the protocol; ``user`` and ``server`` are its roles, as functions from state to
state, and ``device`` ensures that each state is used once; ``messages`` has the messages, ``keys``
and ``masks`` the cryptography, ``shamir`` the secret sharing for dropouts, ``round`` the common
parameters. Adversary model and proofs: docs/proofs/masked_aggregation.md.
"""
