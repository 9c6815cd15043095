"""What makes an acknowledged update last: commit log, checkpoints, recovery (LOG.md)."""
