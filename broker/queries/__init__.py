"""One-time SELECTs, views and derived streams: what a statement may be, and what it reads."""
