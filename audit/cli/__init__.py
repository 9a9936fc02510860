r"""The commands of ``dpcore audit``; ``commands`` registers them."""
