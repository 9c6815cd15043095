"""Which neighbour gets which messages: the routing state of one process."""
