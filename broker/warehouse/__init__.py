"""The warehouse: SQLite files behind the commit log, queries over them, and policies (WAREHOUSE.md)."""
