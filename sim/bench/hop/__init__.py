"""`hullcast bench hop`: what a frame costs each process it passes, stage by stage."""
