"""Brokers among the nodes: which of them forwards to which, and where each subscription lives."""

#: Names of the placements. (Here, because help must not wait for numba.)
PLACEMENTS = ("can", "tree-content", "tree-nearest", "tree-random")
