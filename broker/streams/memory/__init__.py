"""What a join of streams keeps when it may not keep everything (MEMORY.md, one folder up)."""
