"""The warehouse process and its workers."""
