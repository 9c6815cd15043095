"""The tour in the terminal: a synthetic market, live answers, and SQLite as the judge."""
