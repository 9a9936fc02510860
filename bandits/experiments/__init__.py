r"""Experiments: many runs over seeds and algorithms, stored, resumed and summarised."""
