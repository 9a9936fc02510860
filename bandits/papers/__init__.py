r"""The privacy theorems of four papers, compared with exact values."""
