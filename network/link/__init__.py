"""Reliable links between a child process and its parent: ordered, exactly once while both live, bounded."""
