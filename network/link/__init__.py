"""Reliable links between a child process and its parent: ordered, bounded, exactly once."""
