"""Links, routing and nodes: they know messages and predicates, never tables."""
