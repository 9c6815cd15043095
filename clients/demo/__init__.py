"""The demo: a cluster of processes, a synthetic market, a gateway that is killed, and SQLite as the judge."""
