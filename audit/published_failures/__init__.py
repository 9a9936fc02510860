r"""Real failures of published packages, each with its source, figure and repaired twin."""
