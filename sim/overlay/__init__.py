"""Brokers among the nodes: who forwards to whom, and which of them a subscription lives at."""

#: Names of the placements. (Here, because help must not wait for numba.)
PLACEMENTS = ("can", "tree-content", "tree-nearest", "tree-random")
