r"""Certificates: mechanisms and their guarantees in a file that an independent checker verifies.

certify                  write a certificate
verify_certificate       decide every claim of a certificate, and list the findings
worst_of_certificates    verify an epsilon for a user who is in one of several parts
certificate_format       parse an untrusted certificate and check every field
canonical_text           the canonical text, its digest, required assumptions, and summaries
check_claim_with_kernel  decide the claims with the proof kernel, at a suitable resolution
estimate                 floating-point estimates of claims that the kernel cannot prove
deadline                 the time limit of a verification
single_file              the kernel as a single file, for an auditor without dpcore
export                   NIST SP 800-226 and OpenDP formats
"""
