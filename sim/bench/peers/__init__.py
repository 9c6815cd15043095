"""`hullcast bench peers`: one job, by Hullcast and by the systems a user would try first (PEERS.md)."""
