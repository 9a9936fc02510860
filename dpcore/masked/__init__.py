r"""Secure aggregation after Bonawitz et al. 2017: the server learns only a sum.

``aggregation`` runs it; ``user`` and ``server`` are its roles, functions from state to state, and
``device`` holds their states so that each is used once; ``messages`` is what they send,
``keys`` and ``masks`` what hides it, ``shamir`` what lets users vanish, ``round`` what all agree
on. Proofs and the adversary: docs/proofs/masked_aggregation.md.
"""
