"""Streams: operators over append-only tuples, what they keep in memory, and which of them runs next."""
