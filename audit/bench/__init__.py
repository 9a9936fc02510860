r"""Bench: does the auditor refute every broken mechanism and pass every correct twin?"""
