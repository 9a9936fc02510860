r"""Combinatorial semi-bandits: super arms of base arms, oracles, rewards and CUCB."""
