"""Which points lie in a box: one k-d tree for every kind of message."""
