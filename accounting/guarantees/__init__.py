r"""Guarantees as data: pure DP, zCDP, Renyi DP, (epsilon, delta)-DP, and bounds on them."""
