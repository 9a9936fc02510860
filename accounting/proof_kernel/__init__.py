r"""A proof checker for certificates that uses only integer arithmetic and the standard library.

Start with ``delta_bounds``; ``accounting.certificates.check_claim_with_kernel`` decides claims.
"""
