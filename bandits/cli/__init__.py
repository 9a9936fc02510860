r"""The commands of ``dpcore bandit``; ``commands`` registers them."""
