r"""The worst-case pair of every noise law; ``registry`` finds it."""
