r"""Reports: what an audit found, as text, JSON and HTML."""
