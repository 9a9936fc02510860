r"""A proof checker for certificates, whose bounds need only integers and the standard library.

``delta_bounds`` is the best module to read first. The claims of a certificate are checked by
``accounting.certificates.check_claim_with_kernel``.
"""
