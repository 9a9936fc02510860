r"""Evidence: events, rules learned from outputs, and bounds that hold with a stated confidence."""
