"""The SQLite files of tables and views, and what brings them up to date."""
