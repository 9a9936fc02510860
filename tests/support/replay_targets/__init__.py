"""Small mechanisms to be replayed: with one fault each, or with none."""
