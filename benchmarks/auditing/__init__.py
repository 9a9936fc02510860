"""What ``python -m benchmarks.audit`` measures, a file for each kind of question."""
