r"""Secure aggregation after Bonawitz et al. 2017: the server learns only a sum.

``masked_aggregation`` runs the protocol; ``user`` and ``server`` are its roles, as functions from
state to state, and ``network_round`` ensures that each state is used once; ``messages`` has the
messages, ``keys`` and ``pseudorandom_vector`` the cryptography, ``shamir`` the secret sharing for
dropouts, ``round_parameters`` the common parameters. Adversary model and proofs:
docs/proofs/masked_aggregation.md.
"""
