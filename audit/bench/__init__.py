r"""Bench: the auditor must refute every broken mechanism and pass every correct twin."""
