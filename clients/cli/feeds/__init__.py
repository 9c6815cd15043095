"""Rows on their way in: read from files and traces, typed, paced, sent in batches."""
