r"""Speed, tightness and power beside the peers, as JSON; never asserted in tests."""
