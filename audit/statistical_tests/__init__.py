r"""Evidence: test a claim on outputs, and bound epsilon with a stated confidence."""
