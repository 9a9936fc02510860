r"""Apart: code of others runs in a process of its own, and only data comes back."""
