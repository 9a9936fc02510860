r"""Budgets: noise calibration for a target, and the budget of a returning user."""
