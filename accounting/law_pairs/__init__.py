r"""The worst-case pair of every noise law; ``registry`` finds the pair of a law."""
