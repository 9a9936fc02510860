"""Privacy losses as tables: the cells of a round, and two finite laws that bound its loss."""
