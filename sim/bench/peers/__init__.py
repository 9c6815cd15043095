"""`hullcast bench peers`: one job done by Hullcast and by the systems a user would try first (PEERS.md)."""
