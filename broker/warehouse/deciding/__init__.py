"""What the warehouse does next: the board, turns, and a policy. Pure."""
