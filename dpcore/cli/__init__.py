r"""The command ``dpcore``: its entry point, progress bars, and output files."""
