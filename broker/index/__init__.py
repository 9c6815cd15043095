"""The A2B-tree, the index behind MIN, MAX, DISTINCT and joins (A2BTREE.md)."""
