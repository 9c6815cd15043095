"""`hullcast bench engine`: what the engine costs, beside Xie (2007) and beside baselines measured in the same run."""
