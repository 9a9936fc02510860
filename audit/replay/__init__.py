r"""Replay: run both datasets with the same random draws and compare the outputs."""
