"""Tests of bandits: inputs of policies, laws of the noise, and guarantees of runs."""
