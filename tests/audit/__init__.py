"""Test: the auditor, its catalogue, and the tests that audit the auditor."""
