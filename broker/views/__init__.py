"""Views that are kept almost ready: their definition, and their maintenance by the changes of each base table."""
