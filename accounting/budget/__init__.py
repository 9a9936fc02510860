r"""Budgets: the least noise for a target, and what a user who returns may spend."""
