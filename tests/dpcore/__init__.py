"""The tests of dpcore."""
