"""`hullcast bench joins`: many standing joins, plan by plan (Xie (2007), 4.6), and over a cluster."""
