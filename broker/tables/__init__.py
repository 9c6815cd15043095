"""Tables: what a row is, how its values become codes, where it is kept, and the feed of what changed."""
