r"""Output formats of results: text, JSON, HTML, JUnit and SARIF."""
