"""One-time queries on SQLite files that are loaded from the commit log (WAREHOUSE.md)."""
