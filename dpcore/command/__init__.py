r"""The command ``dpcore``: its entry point, progress, and the files it writes."""
