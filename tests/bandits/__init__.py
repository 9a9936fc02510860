"""Tests of bandits: what a policy sees, what noise it runs on, and what a run says it cost."""
