"""What ``python -m benchmarks.auditing`` measures, a file for each kind of question."""
