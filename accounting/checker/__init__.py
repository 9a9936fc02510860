r"""A certificate checked along a second path, on the standard library and mpmath alone.

Nothing here imports the engines that derived the certificate, nor their ball arithmetic: only the
text of the certificate is shared. What is computed is a second numerical opinion with a stated
error estimate, not a proof; how it is computed, and when it declines, is docs/proofs/checker.md.
"""

from accounting.checker.clock import deadline
from accounting.checker.text.reading import Malformed
from accounting.checker.verdict import Allowance, Finding, Status, Verdict, verify

__all__ = ["Allowance", "Finding", "Malformed", "Status", "Verdict", "deadline", "verify"]
