"""`hullcast bench views`: what it takes to keep views almost ready, whether promises are kept, and who notices."""
