"""The measurements of ``python -m benchmarks.auditing``, one file per kind."""
