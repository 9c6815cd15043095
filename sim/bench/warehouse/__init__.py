"""`hullcast bench warehouse`: what loads, queries and policies take."""
