"""`hullcast bench live`: a cluster of processes under load, beside baselines of the same run."""
