"""What travels: frames, bodies, columns and errors, checked against limits (PROTOCOL.md)."""
