"""Views that are ready in a promised time: maintained by deltas, in batches (VIEWS.md)."""
