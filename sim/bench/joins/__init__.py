"""`hullcast bench joins`: many standing joins, plan by plan, as in Xie (2007), section 4.6; and over a cluster."""
