r"""Combinatorial semi-bandits: super arms, oracles, rewards, and CUCB."""
