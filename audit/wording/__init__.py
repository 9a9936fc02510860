r"""How results are written for a reader: numbers as JSON, long texts cut, named rows as lines."""
