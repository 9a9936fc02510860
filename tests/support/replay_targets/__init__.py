"""Small mechanisms to be replayed: each with one fault, or with none."""
