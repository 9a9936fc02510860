r"""Isolate the audited code: run it in a process of its own, from which only data comes back."""
