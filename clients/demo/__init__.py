"""The demo: a cluster, a synthetic market, a gateway that is killed, and SQLite as the judge."""
