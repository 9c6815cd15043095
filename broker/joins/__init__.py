"""Standing joins: which pairs of rows somebody wants, whatever the number of those who ask."""
