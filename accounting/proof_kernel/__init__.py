r"""A proof checker for certificates, in integer arithmetic and with only the standard library.

Start with ``delta_bounds``; ``accounting.certificates.check_claim_with_kernel`` decides claims.
"""
