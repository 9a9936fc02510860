r"""A proof checker for certificates, in integer arithmetic and with only the standard library.

``delta_bounds`` is the entry; ``accounting.certificates.check_claim_with_kernel`` decides claims.
"""
