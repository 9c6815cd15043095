"""Views that are ready in a promised time: kept by deltas, in batches, so that what is left never takes longer."""
