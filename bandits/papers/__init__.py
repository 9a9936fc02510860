r"""The privacy theorems of the papers, compared with exact values."""
