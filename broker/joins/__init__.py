"""Many standing joins at once: stabbing partitions of their ranges, hotspots, plans, and a plan per row."""
