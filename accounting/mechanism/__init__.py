r"""Descriptions: what is asked of the accountant as frozen data, its text and its JSON."""
