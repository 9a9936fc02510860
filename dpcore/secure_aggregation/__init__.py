r"""Secure aggregation after Bonawitz et al. 2017: the server learns only a sum.

``masked_aggregation`` runs the protocol and ensures that each state is used once. ``user`` and
``server`` are its roles, as functions from state to state. ``messages`` defines the messages,
``keys_and_masks`` the cryptography and the masks, ``shamir`` the secret sharing for dropouts, and
``round_parameters`` the common parameters. Adversary model and proofs:
docs/proofs/masked_aggregation.md.
"""
