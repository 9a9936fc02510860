r"""The commands of ``dpcore audit``; the module ``commands`` registers them."""
