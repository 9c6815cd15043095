"""The warehouse: SQLite files behind the commit log, one-time queries over them, and policies that say what is next."""
