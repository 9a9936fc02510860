r"""The dominating pairs of every noise law; ``registry`` finds the pair of a law."""
