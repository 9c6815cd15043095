"""`hullcast bench warehouse`: one-time queries against loading feeds, and what the push path notices."""
