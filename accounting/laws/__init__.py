r"""Laws: the worst pair of every noise that has one; ``registry`` finds it."""
