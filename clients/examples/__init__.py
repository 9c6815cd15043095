"""Examples to run, to read and to begin your own programs with; each has a page beside it."""
