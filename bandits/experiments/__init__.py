r"""Experiments: many runs over seeds and algorithms, which are stored, resumed and summarised."""
