"""`hullcast bench views`: what keeping views almost ready takes, and whether promises are kept."""
