"""Privacy losses as tables: cells of a round, and the two finite laws that enclose its loss."""
