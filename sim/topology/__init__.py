"""Networks of physical nodes: made, read, measured, and the shortest ways through them."""
