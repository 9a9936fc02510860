r"""Test a claim on outputs, and bound epsilon from below with a stated confidence."""
