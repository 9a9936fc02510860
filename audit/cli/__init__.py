r"""The commands of ``dpcore audit``, one per file; ``commands`` registers them."""
