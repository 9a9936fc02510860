"""Tests of the auditor and its catalogue, and the tests that the auditor itself is valid."""
